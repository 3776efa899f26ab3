"""How apps call an artifact from another language: its methods with their tensors, and names that
the language takes.
"""

from __future__ import annotations

import keyword
import math
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from edgeexport.artifact.folder import Artifact
from edgeexport.artifact.manifest import InputEntry, MethodEntry, OutputEntry, StateEntry
from edgeexport.method import Dim
from edgeexport.samplers import OutputOf

TYPES = {
    "float32": {"kotlin": "Float", "swift": "Float", "cpp": "float", "scalar": "Float"},
    "float64": {"kotlin": "Double", "swift": "Double", "cpp": "double", "scalar": "Double"},
    "int64": {"kotlin": "Long", "swift": "Int64", "cpp": "int64_t", "scalar": "Long"},
    "int32": {"kotlin": "Int", "swift": "Int32", "cpp": "int32_t", "scalar": "Int"},
    "int8": {"kotlin": "Byte", "swift": "Int8", "cpp": "int8_t", "scalar": "Char"},
    "uint8": {"kotlin": "UnsignedByte", "swift": "UInt8", "cpp": "uint8_t", "scalar": "Byte"},
    "bool": {"kotlin": None, "swift": "Bool", "cpp": "uint8_t", "scalar": "Bool"},
}
"""The element types of each language; ExecuTorch's Tensor for Kotlin has no bool."""

_JAVA = """
    abstract assert boolean break byte case catch char class const continue default do double else enum
    extends final finally float for goto if implements import instanceof int interface long native new
    package private protected public return short static strictfp super switch synchronized this throw
    throws transient try void volatile while true false null
""".split()
_KOTLIN = (
    "as break class continue do else false for fun if in interface is null object package return super this"
    " throw true try typealias typeof val var when while".split()
)
_SWIFT = """
    associatedtype class deinit enum extension fileprivate func import init inout internal let open
    operator private precedencegroup protocol public rethrows static struct subscript typealias var
    actor await break case catch continue default defer do else fallthrough for guard if in repeat
    return throw switch where while Any as async false is nil self Self super throws true try Type
    Protocol
""".split()
_CPP = """
    alignas alignof and and_eq asm auto bitand bitor bool break case catch char char8_t char16_t
    char32_t class co_await co_return co_yield compl concept const consteval constexpr constinit
    const_cast continue decltype default delete do double dynamic_cast else enum explicit export extern
    false float for friend goto if inline int long mutable namespace new noexcept not not_eq nullptr
    operator or or_eq private protected public register reinterpret_cast requires return short signed
    sizeof static static_assert static_cast struct switch template this thread_local throw true try
    typedef typeid typename union unsigned using virtual void volatile wchar_t while xor xor_eq main
""".split()
KEYWORDS = {
    "java": frozenset(_JAVA),
    "kotlin": frozenset(_KOTLIN),
    "swift": frozenset(_SWIFT),
    "cpp": frozenset(_CPP),
    "python": frozenset(keyword.kwlist),
}
"""Words that are no names, by language."""


@dataclass(frozen=True)
class Argument:
    """One tensor that a method takes; `shape` holds sizes and dynamic dimensions, `values` the
    least and greatest that makes sense.

    `source` is the method and output whose answer it is; None where it is the app's own. `first_of`
    is as in `method.Input`.
    """

    name: str
    dtype: str
    shape: tuple[int | Dim, ...]
    about: str
    values: tuple[float, float] | None
    first_of: str | None
    source: tuple[str, str] | None

    @property
    def sizes(self) -> tuple[int, ...]:
        """The least size in each dimension."""
        return tuple(size.min if isinstance(size, Dim) else size for size in self.shape)

    @property
    def count(self) -> int:
        return math.prod(self.sizes)


@dataclass(frozen=True)
class Result:
    """One tensor that a method returns, at its least sizes; `passed_on` to a later method."""

    name: str
    dtype: str
    sizes: tuple[int, ...]
    about: str
    passed_on: bool


@dataclass(frozen=True)
class Call:
    """One method with its tensors. `state` holds the buffers that it changes."""

    method: str
    arguments: tuple[Argument, ...]
    results: tuple[Result, ...]
    state: tuple[StateEntry, ...]


def calls_of(artifact: Artifact) -> tuple[Call, ...]:
    """Every method in the manifest's order, the order of the data."""
    methods = artifact.manifest.methods
    sources = {_source(spec) for entry in methods for spec in entry.inputs}
    return tuple(
        Call(
            entry.name,
            tuple(_argument(entry, spec) for spec in entry.inputs),
            tuple(_result(entry, o, sources) for o in entry.outputs),
            entry.state,
        )
        for entry in methods
    )


def with_own_state(calls: Sequence[Call]) -> tuple[Call, ...]:
    """Those whose state no later one takes up.

    ExecuTorch's Module for Kotlin and Swift keeps the state of each method apart: there `prefill`
    cannot fill the cache of `decode_step`.
    """
    names = [{buffer.name for buffer in call.state} for call in calls]
    return tuple(
        call
        for index, call in enumerate(calls)
        if not any(names[index] & later for later in names[index + 1 :])
    )


def identifier(name: str, language: str, taken: Collection[str] = ()) -> str:
    """`name` as a function, an argument or a property of a language: in its style, no keyword, and
    none that is `taken`.
    """
    words = [word for word in re.split(r"\W|_", name, flags=re.ASCII) if word] or ["value"]
    made = "_".join(words) if language in ("cpp", "python") else camel("_".join(words))
    made = f"_{made}" if made[0].isdigit() else made
    while made in KEYWORDS[language] or made in taken:
        made += "_"
    return made


def type_name(name: str, taken: Collection[str] = ()) -> str:
    """`name` as a class: whisper-tiny.en as WhisperTinyEn."""
    made = (
        "".join(word[0].upper() + word[1:] for word in re.split(r"\W|_", name, flags=re.ASCII) if word)
        or "Model"
    )
    made = f"Model{made}" if made[0].isdigit() else made
    while made in taken:
        made += "Model"
    return made


def camel(name: str) -> str:
    """cross_keys_0 as crossKeys0."""
    first, *rest = name.split("_")
    return first + "".join(part[:1].upper() + part[1:] for part in rest)


def _argument(entry: MethodEntry, spec: InputEntry) -> Argument:
    dims = entry.ranges
    shape = tuple(
        (dims[s] if dims[s].dynamic else dims[s].min) if isinstance(s, str) else s for s in spec.shape
    )
    bounds = [f"{dim.name} {dim.min} to {dim.max}" for dim in shape if isinstance(dim, Dim)]
    values = f"{spec.range[0]:g} to {spec.range[1]:g} {spec.unit or ''}".strip() if spec.range else ""
    about = "; ".join(filter(None, (spec.meaning, values, *bounds))).replace("\n", " ")
    return Argument(spec.name, spec.dtype, shape, about, spec.range, spec.first_of, _source(spec))


def _source(spec: InputEntry) -> tuple[str, str] | None:
    """The method and output whose answer an input is."""
    return (spec.sample.method, spec.sample.output) if isinstance(spec.sample, OutputOf) else None


def _result(entry: MethodEntry, output: OutputEntry, sources: set) -> Result:
    sizes = output.shape_at_least
    about = f"{output.dtype} [{', '.join(map(str, sizes))}]" + (
        f": {output.meaning}" if output.meaning else ""
    )
    return Result(
        output.name, output.dtype, sizes, about.replace("\n", " "), (entry.name, output.name) in sources
    )
