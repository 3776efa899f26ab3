"""How an app calls an artifact: short code in its language, with the artifact's own file, methods, shapes and dtypes."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass

from edgeexport.artifact import Artifact, dims_of
from edgeexport.report import text

LANGUAGES = {".pte": {"Kotlin": "kotlin", "Swift": "swift", "C++": "cpp", "Python": "python"}, ".pt2": {"Python": "python", "C++": "cpp_package"}}
"""Templates in `code/` by the language's name, for each kind of program."""

TYPES = {
    "float32": {"kotlin": "Float", "swift": "Float", "cpp": "float", "scalar": "Float"},
    "float64": {"kotlin": "Double", "swift": "Double", "cpp": "double", "scalar": "Double"},
    "int64": {"kotlin": "Long", "swift": "Int64", "cpp": "int64_t", "scalar": "Long"},
    "int32": {"kotlin": "Int", "swift": "Int32", "cpp": "int32_t", "scalar": "Int"},
    "int8": {"kotlin": "Byte", "swift": "Int8", "cpp": "int8_t", "scalar": "Char"},
    "uint8": {"kotlin": "UnsignedByte", "swift": "UInt8", "cpp": "uint8_t", "scalar": "Byte"},
    "bool": {"kotlin": None, "swift": "Bool", "cpp": "uint8_t", "scalar": "Bool"},
}
"""The element types of each language; Kotlin's Tensor has no bool."""

TAKEN = {"module", "program", "main", "torch", "edgeexport", "in", "val", "var", "let", "fun", "func", "class", "def", "return", "int", "float", "long", "bool", "auto"}
"""Names that the code itself, or a language, has."""


@dataclass(frozen=True)
class Argument:
    """One tensor that a call takes: the app's own, or `source`, the call and place of the answer that it is."""

    name: str
    var: str
    dtype: str
    sizes: tuple[int, ...]
    about: str
    source: tuple[str, int] | None

    @property
    def count(self) -> int:
        return math.prod(self.sizes)


@dataclass(frozen=True)
class Result:
    """One tensor that a call returns; `passed_on` to a later call."""

    name: str
    var: str
    index: int
    dtype: str
    about: str
    passed_on: bool


@dataclass(frozen=True)
class Call:
    """One method with its tensors. `state` holds the buffers that it changes."""

    method: str
    var: str
    arguments: tuple[Argument, ...]
    results: tuple[Result, ...]
    state: tuple[dict, ...]


def app_code(artifact: Artifact, environment) -> dict[str, str]:
    """The code by language; `environment` is Jinja's, without escaping."""
    calls = _calls(artifact)
    stateful = [call.method for call in calls if call.state]
    facts = {
        "file": artifact.manifest["program"], "folder": artifact.name, "calls": calls, "types": TYPES, "camel": _camel,
        "results": {(call.var, result.index): result.var for call in calls for result in call.results}, "stateful": stateful,
        "buffers": list({s["name"]: s for call in calls for s in call.state}.values()),
    }  # fmt: skip
    languages = LANGUAGES[artifact.program_path.suffix]
    return {language: environment.get_template(f"code/{name}.j2").render(facts).strip() + "\n" for language, name in languages.items()}


def _calls(artifact: Artifact) -> list[Call]:
    """Every method in the manifest's order, the order of the data."""
    sources = {(i["sample"]["method"], i["sample"]["output"]) for m in artifact.manifest["methods"] for i in m["inputs"] if i["sample"]["kind"] == "output_of"}
    homes: dict[tuple[str, str], tuple[str, int]] = {}
    taken = set(TAKEN)
    calls = []
    for entry in artifact.manifest["methods"]:
        var = _free(f"{_identifier(entry['name'])}_out", entry["name"], taken)
        arguments = tuple(_argument(entry, spec, homes, taken) for spec in entry["inputs"])
        results = tuple(_result(entry, index, sources, taken) for index in range(len(entry["outputs"])))
        homes |= {(entry["name"], result.name): (var, result.index) for result in results}
        calls.append(Call(entry["name"], var, arguments, results, tuple(entry["state"])))
    return calls


def _argument(entry: dict, spec: dict, homes: Mapping, taken: set[str]) -> Argument:
    dims = dims_of(entry)
    sizes = tuple(dims[s].min if isinstance(s, str) else s for s in spec["shape"])
    bounds = [f"{s} {dims[s].min} to {dims[s].max}" for s in spec["shape"] if isinstance(s, str) and dims[s].dynamic]
    source = homes.get((spec["sample"].get("method"), spec["sample"].get("output")))
    values = f"{spec['range'][0]:g} to {spec['range'][1]:g} {spec['unit'] or ''}".strip() if spec["range"] else ""
    about = "; ".join(filter(None, (spec["meaning"], values, *bounds))).replace("\n", " ")
    var = _free(_identifier(spec["name"]), entry["name"], taken) if source is None else ""
    return Argument(spec["name"], var, spec["dtype"], sizes, about, source)


def _result(entry: dict, index: int, sources: set, taken: set[str]) -> Result:
    output = entry["outputs"][index]
    about = f"{output['dtype']} {text.shape(output['shape_at_least'])}" + (f": {output['meaning']}" if output["meaning"] else "")
    var = _free(_identifier(output["name"]), entry["name"], taken)
    return Result(output["name"], var, index, output["dtype"], about.replace("\n", " "), (entry["name"], output["name"]) in sources)


def _identifier(name: str) -> str:
    return re.sub(r"\W", "_", name)


def _free(name: str, method: str, taken: set[str]) -> str:
    """`name`, or with its method before it where another has it already."""
    while name in taken:
        name = f"{_identifier(method)}_{name}"
    taken.add(name)
    return name


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(part.capitalize() for part in rest)
