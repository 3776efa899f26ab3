"""A Swift package for iOS and macOS, with a sample view."""

from __future__ import annotations

import functools
import json
import re
import shutil
from collections.abc import Iterator, Mapping
from importlib import resources
from pathlib import Path
from typing import Any

from edgeexport.artifact.signatures import KEYWORDS, Argument, identifier
from edgeexport.errors import UsageError
from edgeexport.method import Dim
from edgeexport.ship.mobile import Request
from edgeexport.ship.mobile.api import Api, Function, Parameter, api_of
from edgeexport.ship.mobile.notice import notice
from edgeexport.ship.mobile.templates import environment

SUMMARY = "a Swift package for iOS and macOS with a sample view"
LANGUAGE = "swift"
RUNTIME = "ExecuTorch's Swift package"
RUNTIME_URL = "https://github.com/pytorch/executorch.git"
PRODUCTS_OF_BACKENDS = {
    "XnnpackBackend": "backend_xnnpack",
    "CoreMLBackend": "backend_coreml",
    "MPSBackend": "backend_mps",
}
PRODUCTS_OF_OPERATORS = {
    "quantized_decomposed": "kernels_quantized",
    "torchao": "kernels_torchao",
    "llama": "kernels_llm",
}
"""What RUNTIME has beside `executorch` and `kernels_optimized`: products by backend, and by
namespace of operators.
"""
BACKENDS = frozenset(PRODUCTS_OF_BACKENDS)
DTYPES = {
    "float32": "FloatTensor",
    "int64": "LongTensor",
    "int32": "IntTensor",
    "uint8": "ByteTensor",
    "bool": "BoolTensor",
}
GOLDEN = Path("Tests/golden")

MEMBERS = frozenset("queue methods pipeline facts outputs unownedExecutor init self".split())
"""What the generated actor has beside its functions; an initialiser is called as a function of no
name.
"""

WORDS = {
    "segmentation": "Segmentation",
    "speech": "Speech",
    "captions": "Caption",
    "video": "Video",
    "pose": "Pose",
}
"""What the Swift code calls each pipeline."""
PIPELINES = frozenset(WORDS)

_PHOTO = frozenset({"segmentation", "captions", "video", "pose"})
_TEXT = frozenset({"speech", "captions"})
PARTICULAR: Mapping[str, frozenset[str]] = {
    **{f"{word}Pipeline.swift": frozenset({name}) for name, word in WORDS.items()},
    "RgbImage.swift": _PHOTO,
    "CGImages.swift": _PHOTO,
    "Photos.swift": _PHOTO - {"video"},
    "Geometry.swift": frozenset({"segmentation", "pose"}),
    "MaskImage.swift": frozenset({"segmentation"}),
    "TextDecoder.swift": _TEXT,
    "Tokenizer.swift": _TEXT,
    "Sound.swift": frozenset({"speech"}),
    "Frames.swift": frozenset({"video"}),
    "Numerics.swift": frozenset(WORDS),
}
"""The pipelines that a source file is for; one that is not named here is in every package."""


def app_id(given: str | None, model: str) -> str:
    """The name that the model's queue has in crash reports, in the form of a bundle identifier:
    `given` if it is one. Raises UsageError.
    """
    if given is None:
        return f"com.example.{identifier(model, 'cpp').lower().replace('_', '-')}"
    segments = given.split(".")
    if len(segments) < 2 or not all(
        re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9-]*", segment, re.ASCII) for segment in segments
    ):
        raise UsageError(
            f"'{given}' is no bundle identifier: write two or more words of letters, digits and - with dots"
            " between them, as com.example.sam2."
        )
    return given


def write(request: Request, folder: Path) -> None:
    """The package: sources, the program and what it needs as resources, tests on the golden record,
    a sample view, and what is to be known about them.
    """
    api = _api(request)
    files = _write_resources(request, folder / "Sources" / _module(api) / "Resources")
    facts = _facts(request, api, files)
    _write_project(facts, folder)
    _write_sources(facts, folder)
    (folder / "NOTICE").write_text(
        notice(request.manifest, f"{RUNTIME} {request.runtime_version}", request.notes), encoding="utf-8"
    )


def _module(api: Api) -> str:
    """The package, its library and its module.

    A module that has the name of one of its types hides its others.
    """
    return f"{api.name}Kit"


def _api(request: Request) -> Api:
    """The typed API; its types have names that nothing in the package's code uses."""
    words = {
        word
        for _, text in _sources("pure", "apple", "tests", "examples")
        for word in re.findall(r"\b[A-Z]\w*", text)
    }
    return api_of(request.manifest.model.name, request.calls, LANGUAGE, MEMBERS, words | KEYWORDS[LANGUAGE])


def _facts(request: Request, api: Api, files: list[str]) -> dict[str, Any]:
    manifest = request.manifest
    return {
        "id": request.app_id,
        "api": api,
        "module": _module(api),
        "pipeline": request.pipeline,
        "word": WORDS.get(request.pipeline or ""),
        "runtime_url": RUNTIME_URL,
        "runtime_version": request.runtime_version,
        "products": products(request.artifact.program_path),
        "summary": manifest.model.summary,
        "program": manifest.program,
        "program_stem": Path(manifest.program).stem,
        "program_sha256": request.program_sha256,
        "program_bytes": request.artifact.program_path.stat().st_size,
        "resources": files,
        "notes": request.notes,
        "function": api.functions[0],
    }


def products(program: Path) -> list[str]:
    """The products of RUNTIME that a program needs."""
    from edgeexport.artifact.pte import read_methods

    methods = read_methods(program)
    backends = {backend for method in methods for backend in method.backends}
    namespaces = {operator.partition("::")[0] for method in methods for operator in method.operators}
    needed = [PRODUCTS_OF_BACKENDS[backend] for backend in sorted(backends)] + [
        p for name, p in PRODUCTS_OF_OPERATORS.items() if name in namespaces
    ]
    return ["executorch", *needed, "kernels_optimized"]


def _write_resources(request: Request, home: Path) -> list[str]:
    """The files of the app's bundle; of the manifest what an app needs: nothing of the machine that
    it was built on.
    """
    home.mkdir(parents=True)
    manifest = request.manifest
    shutil.copyfile(request.artifact.program_path, home / manifest.program)
    _write(home / "manifest.json", json.dumps(manifest.for_app(), indent=1) + "\n")
    shutil.copyfile(_folder() / "project" / "PrivacyInfo.xcprivacy", home / "PrivacyInfo.xcprivacy")
    name = manifest.prepare.get("tokenizer", "")
    if name in manifest.files:
        _write(
            home / "tokenizer.json",
            tokenizer_by_id((request.artifact.path / name).read_text(encoding="utf-8")),
        )
    return sorted(file.name for file in home.iterdir())


def tokenizer_by_id(text: str) -> str:
    """A tokenizer.json whose vocabulary is a list by id, null where there is no token, and without
    merges.

    Swift takes strings for equal whose characters are canonically equivalent: as keys, two tokens
    of a vocabulary may be one.
    """
    facts = json.loads(text)
    vocabulary = facts["model"]["vocab"]
    tokens: list[str | None] = [None] * (max(vocabulary.values(), default=-1) + 1)
    for token, place in vocabulary.items():
        tokens[place] = token
    facts["model"] = {key: value for key, value in facts["model"].items() if key != "merges"} | {
        "vocab": tokens
    }
    return json.dumps(facts, ensure_ascii=False) + "\n"


def _write_project(facts: Mapping[str, Any], folder: Path) -> None:
    for name, template in {
        "Package.swift": "Package.swift.j2",
        "README.md": "README.md.j2",
        ".gitignore": "gitignore",
    }.items():
        _write(folder / name, _environment().get_template(f"ios/project/{template}").render(facts))


def _write_sources(facts: Mapping[str, Any], folder: Path) -> None:
    home, pipeline = folder / "Sources" / facts["module"], facts["pipeline"]
    for name, text in _sources("pure", "apple"):
        if pipeline in PARTICULAR.get(name, {pipeline}):
            _write(home / name, text)
    generated = {
        home / f"{facts['api'].name}.swift": "project/Model",
        folder / "Examples" / "App.swift": "examples/App",
    }
    generated |= {
        folder / "Tests" / f"{name}.swift": f"tests/{name}" for name in ("Golden", "Replay", "CasesTests")
    }
    generated |= {folder / "Examples" / "ContentView.swift": f"examples/{pipeline or 'tensors'}"}
    if pipeline:
        generated[folder / "Tests" / f"{facts['word']}Tests.swift"] = f"tests/{pipeline}"
    for path, template in generated.items():
        _write(path, _environment().get_template(f"ios/{template}.swift.j2").render(facts))


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def _folder() -> Path:
    return Path(str(resources.files("edgeexport.ship.mobile") / "ios"))


def _sources(*kinds: str) -> Iterator[tuple[str, str]]:
    """Name and text of the Swift files, and of the templates of some."""
    for kind in kinds:
        for file in sorted((_folder() / kind).glob("*.swift*")):
            yield file.name, file.read_text(encoding="utf-8")


@functools.cache
def _environment():
    return environment(
        comment=_comment,
        string=_string,
        type=DTYPES.__getitem__,
        tensor=_tensor,
        zeros=_zeros,
        parameters=_parameters,
        short_parameters=_short_parameters,
        short_arguments=_short_arguments,
        backticked=lambda name: f"`{name}`",
    )


def _comment(text: str) -> str:
    """Text of one line."""
    return " ".join(text.split())


def _string(text: str) -> str:
    """A Swift string."""
    escaped = "".join(
        f"\\u{{{ord(c):x}}}" if ord(c) < 32 or ord(c) == 127 else {"\\": "\\\\", '"': '\\"'}.get(c, c)
        for c in text
    )
    return f'"{escaped}"'


def _tensor(argument: Argument) -> str:
    """What a tensor must be, for people: float32 [1 to 16, 3, 224, 224]."""
    sizes = (
        f"{size.name} {size.min} to {size.max}" if isinstance(size, Dim) else str(size)
        for size in argument.shape
    )
    return f"{argument.dtype} [{', '.join(sizes)}]"


def _zeros(argument: Argument) -> str:
    """A tensor of zeros at the least sizes, as code."""
    zero = "false" if argument.dtype == "bool" else "0"
    return (
        f"{DTYPES[argument.dtype]}(Array(repeating: {zero}, count: {argument.count}),"
        f" [{', '.join(map(str, argument.sizes))}])"
    )


def _parameters(parameters: tuple[Parameter, ...]) -> str:
    return ", ".join(f"{p.name}: {DTYPES[p.argument.dtype]}" for p in parameters)


def _short_parameters(function: Function, api: Api) -> str:
    answers = [f"{name}: {api.outputs_of(name)}" for name in function.answers]
    return ", ".join([_parameters(function.own)] * bool(function.own) + answers)


def _short_arguments(function: Function) -> str:
    return ", ".join(
        f"{p.name}: " + (f"{p.answer[0]}.{p.answer[1]}" if p.answer else p.name) for p in function.parameters
    )
