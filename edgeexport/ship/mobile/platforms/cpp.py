"""A CMake package for Linux boards, around ExecuTorch's C++ runtime."""

from __future__ import annotations

import functools
import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from edgeexport.artifact.signatures import KEYWORDS, TYPES, Argument, identifier
from edgeexport.errors import UsageError
from edgeexport.method import Dim
from edgeexport.ship.mobile import Request
from edgeexport.ship.mobile.api import Api, Function, Parameter, Property, api_of
from edgeexport.ship.mobile.notice import notice
from edgeexport.ship.mobile.templates import environment

SUMMARY = "a CMake package for Linux boards (C++17, typed tensor calls)"
LANGUAGE = "cpp"
RUNTIME = "ExecuTorch's C++ runtime for Linux"
COMPONENTS_OF_BACKENDS = {"XnnpackBackend": "backend_xnnpack"}
COMPONENTS_OF_OPERATORS = {"quantized_decomposed": "kernels_quantized"}
"""What RUNTIME has beside `runtime`, `kernels_optimized` and `threadpool`: components of its CMake
package by backend, and by namespace of operators.
"""
BACKENDS = frozenset(COMPONENTS_OF_BACKENDS)
DTYPES = {dtype: names["cpp"] for dtype, names in TYPES.items()}
GOLDEN = Path("golden")
PIPELINES: frozenset[str] = frozenset()
"""A board's app prepares its own tensors."""

PREFIX = "edgeexport_"
"""What the names of packages begin with, unless one is asked for that does not."""

MACROS = frozenset(
    """assert errno stdin stdout stderr signals slots emit major minor unix linux NULL EOF INFINITY NAN
    I""".split()
)
"""Names that the headers of C, or of an app's framework, replace by something else."""
TYPE_NAMES = frozenset(
    "Shape Tensor View Check Program ProgramFile Type Size Range InputSpec OutputSpec MethodSpec Given Wanted"
    " Record Test".split()
)
MEMBERS = frozenset("program_ result_ given wanted kFile kMethods std".split()) | MACROS | TYPE_NAMES
"""Names that the generated code uses itself."""

FILES = {
    "CMakeLists.txt": "CMakeLists.txt.j2",
    "README.md": "README.md.j2",
    ".gitignore": "gitignore",
    "cmake/aarch64-linux-gnu.cmake": "aarch64-linux-gnu.cmake",
    "cmake/{id}Config.cmake.in": "Config.cmake.in.j2",
    "include/{id}/{stem}.hpp": "Model.hpp.j2",
    "src/{stem}.cpp": "Model.cpp.j2",
    "src/program.hpp": "program.hpp.j2",
    "src/program.cpp": "program.cpp.j2",
    "src/sha256.hpp": "sha256.hpp.j2",
    "src/sha256.cpp": "sha256.cpp.j2",
    "example/example.cpp": "example.cpp.j2",
    "tests/golden_test.cpp": "golden_test.cpp.j2",
}
"""The files of a package, with their templates in `cpp/`."""


def app_id(given: str | None, model: str) -> str:
    """The name of the CMake package, its target and its namespace: `given` if it is one. Raises
    UsageError.
    """
    if given is None:
        return f"{PREFIX}{identifier(model, 'cpp').lower().strip('_')}"
    if not re.fullmatch(r"[A-Za-z](_?[A-Za-z0-9])*", given, re.ASCII) or given in KEYWORDS["cpp"] | MACROS | {
        "std",
        "executorch",
    }:
        raise UsageError(
            f"'{given}' is no name of a CMake package and a C++ namespace: write letters and digits with"
            " single _ between them, as edgeexport_sam2."
        )
    return given


def write(request: Request, folder: Path) -> None:
    """The package: library, program, example, the test on the golden record, and what is to be
    known about them.
    """
    facts = _facts(request)
    for name, template in FILES.items():
        _write(folder / name.format_map(facts), _environment().get_template(f"cpp/{template}").render(facts))
    (folder / "share").mkdir()
    shutil.copyfile(request.artifact.program_path, folder / "share" / facts["program"])
    _write(folder / "NOTICE", notice(request.manifest, f"{RUNTIME} {request.runtime_version}", request.notes))


def _facts(request: Request) -> dict[str, Any]:
    manifest = request.manifest
    api = api_of(
        manifest.model.name,
        request.calls,
        LANGUAGE,
        MEMBERS,
        TYPE_NAMES | {call.method for call in request.calls},
        shared_state=True,
    )
    return {
        "id": request.app_id,
        "stem": _stem(request.app_id),
        "api": api,
        "summary": manifest.model.summary,
        "notes": request.notes,
        "runtime_version": _numbers(request.runtime_version),
        "executorch": request.runtime_version,
        "components": components(request.artifact.program_path),
        "program": manifest.program,
        "program_sha256": request.program_sha256,
        "program_bytes": request.artifact.program_path.stat().st_size,
        "state": [call.method for call in request.calls if call.state],
    }


def _stem(name: str) -> str:
    """The name of the header and of the source: the package's without PREFIX, and none that the
    package's own files have.
    """
    stem = name.removeprefix(PREFIX)
    return f"{stem}_model" if stem in ("program", "sha256") else stem


def _numbers(version: str) -> str:
    """Of a version the numbers, which is all that CMake compares."""
    found = re.match(r"[0-9.]*[0-9]", version)
    assert found is not None, f"{version} has no numbers"
    return found[0]


def components(program: Path) -> list[str]:
    """The components of ExecuTorch's CMake package that a program needs."""
    from edgeexport.artifact.pte import read_methods

    methods = read_methods(program)
    backends = {backend for method in methods for backend in method.backends}
    namespaces = {operator.partition("::")[0] for method in methods for operator in method.operators}
    needed = [COMPONENTS_OF_BACKENDS[backend] for backend in sorted(backends)] + [
        c for name, c in COMPONENTS_OF_OPERATORS.items() if name in namespaces
    ]
    return ["runtime", "kernels_optimized", "threadpool", *needed]


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


@functools.cache
def _environment():
    return environment(
        comment=_comment,
        string=_string,
        cmake=_cmake,
        type=DTYPES.__getitem__,
        tag=_tag,
        tensor=_tensor,
        input_spec=_input_spec,
        parameters=_parameters,
        short_parameters=_short_parameters,
        short_arguments=_short_arguments,
        givens=_givens,
        wanteds=_wanteds,
        example_arguments=_example_arguments,
        record_arguments=_record_arguments,
        readme_arguments=_readme_arguments,
    )


def _comment(text: str) -> str:
    """Text of one line that does not take the next one into the comment."""
    return " ".join(text.split()).rstrip("\\")


def _string(text: str) -> str:
    """A C++ string of UTF-8."""
    return (
        '"'
        + "".join(chr(b) if 32 <= b < 127 and b not in b'"\\?' else f"\\{b:03o}" for b in text.encode())
        + '"'
    )


def _cmake(text: str) -> str:
    """An argument for CMake that is taken as it is."""
    return f"[==[{text}]==]"


def _tag(dtype: str) -> str:
    return "Type::boolean" if dtype == "bool" else f"Type::{dtype}"


def _tensor(argument: Argument) -> str:
    """What a tensor must be, for people: float32 [1 to 16, 3, 224, 224]."""
    sizes = (
        f"{size.name} {size.min} to {size.max}" if isinstance(size, Dim) else str(size)
        for size in argument.shape
    )
    return f"{argument.dtype} [{', '.join(sizes)}]"


def _input_spec(argument: Argument) -> str:
    """The InputSpec of an argument, as code."""
    sizes = (
        (
            f"{{{_string(size.name)}, {size.min}, {size.max}}}"
            if isinstance(size, Dim)
            else f'{{"", {size}, {size}}}'
        )
        for size in argument.shape
    )
    values = (0, 1) if argument.dtype == "bool" else argument.values
    limits = (
        f"Range{{{int(values[0])}, {int(values[1])}}}"
        if values and not argument.dtype.startswith("float")
        else "std::nullopt"
    )
    return (
        f"{{{_string(argument.name)}, {_tag(argument.dtype)}, {{{', '.join(sizes)}}}, {limits},"
        f" {_string(argument.first_of or '')}}}"
    )


def _view(argument: Argument) -> str:
    return f"View<{DTYPES[argument.dtype]}>"


def _parameters(parameters: Sequence[Parameter]) -> str:
    return ", ".join(f"{_view(p.argument)} {p.name}" for p in parameters)


def _short_parameters(function: Function, api: Api) -> str:
    answers = [f"const {api.outputs_of(name)}& {name}" for name in function.answers]
    return ", ".join([_parameters(function.own)] * bool(function.own) + answers)


def _short_arguments(function: Function) -> str:
    return ", ".join(f"{p.answer[0]}.{p.answer[1]}" if p.answer else p.name for p in function.parameters)


def _givens(parameters: Sequence[Parameter]) -> str:
    return ", ".join(f"given({p.name})" for p in parameters)


def _wanteds(properties: Sequence[Property]) -> str:
    return ", ".join(f"wanted(result_.{p.name})" for p in properties)


def _example_arguments(parameters: Sequence[Parameter]) -> str:
    """What earlier methods returned, and zeros, or the value next to zero that makes sense, at the
    least sizes.
    """
    return ", ".join(
        f"{p.answer[0]}_answer.{p.answer[1]}" if p.answer else _filled(p.argument) for p in parameters
    )


def _filled(argument: Argument) -> str:
    least, most = argument.values or (0, 0)
    value = 0 if argument.dtype.startswith("float") else int(min(max(0, least), most))
    return (
        f"{{std::vector<{DTYPES[argument.dtype]}>({argument.count}, {value}),"
        f" {{{', '.join(map(str, argument.sizes))}}}}}"
    )


def _record_arguments(parameters: Sequence[Parameter]) -> str:
    return ", ".join(
        f"record_.tensor<{DTYPES[p.argument.dtype]}>(in.at({index}), {_string(p.argument.dtype)})"
        for index, p in enumerate(parameters)
    )


def _readme_arguments(function: Function) -> str:
    sizes: Mapping[str, str] = {p.name: ", ".join(map(str, p.argument.sizes)) for p in function.own}
    own = [f"{{{name}, {{{shape}}}}}" for name, shape in sizes.items()]
    return ", ".join([*own, *(f"{name}_answer" for name in function.answers)])
