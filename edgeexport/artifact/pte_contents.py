"""What is in a `.pte`, anyone's: methods with their tensors, backends, operators, memory, and the
constants that methods return.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgeexport.artifact.model_schema import METHOD
from edgeexport.artifact.pte import DTYPES, extent, is_constant, operator_name, read_program
from edgeexport.errors import ArtifactError

if TYPE_CHECKING:
    from executorch.exir.schema import ExecutionPlan, Program

SHAPES = {0: "static", 1: "bounded", 2: "unbounded"}
"""Whether a tensor's sizes vary: not; up to those that are recorded; or without a limit."""


@dataclass(frozen=True)
class Value:
    """What a method takes or returns.

    A tensor has `dtype`, `sizes` (where `shape` is bounded: the greatest) and `shape`, one of
    SHAPES; other kinds have none.
    """

    kind: str
    dtype: str | None = None
    sizes: tuple[int, ...] | None = None
    shape: str | None = None


@dataclass(frozen=True)
class Backend:
    """A backend in a method: how many delegates call it, and the bytes of what they are made of,
    weights that they name apart.
    """

    name: str
    delegates: int
    size_bytes: int


@dataclass(frozen=True)
class MethodContents:
    """A method that computes.

    `operators` counts the calls of each outside the delegates; `arena_bytes` is its planned memory
    by the number of the arena.
    """

    name: str
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    backends: tuple[Backend, ...]
    operators: dict[str, int]
    instructions: int
    arena_bytes: dict[int, int]

    @property
    def planned_bytes(self) -> int:
        """What the app must provide."""
        return sum(self.arena_bytes.values())


@dataclass(frozen=True)
class Contents:
    """A program.

    `constants` are what methods without inputs and instructions return; `schema` is what the one of
    model_schema.METHOD says, decoded.

    `constant_bytes` are the program's own constants, `named_bytes` the weights that delegates ask
    for by name, `state_bytes` first values of buffers that calls change. Segments may overlap: the
    sum can be more than the file.
    """

    file: str
    size_bytes: int
    flatbuffer_bytes: int
    constant_bytes: int
    named_bytes: int
    named: int
    state_bytes: int
    methods: tuple[MethodContents, ...]
    constants: dict[str, list[Any]]
    schema: dict[str, Any] | None


def read_contents(path: Path) -> Contents:
    """What is in the `.pte` at `path`.

    Raises ArtifactError for a file that is none, or is damaged.
    """
    program = read_program(path)
    size_bytes, flatbuffer_bytes = extent(path)
    try:
        segments = {entry.segment_index for entry in program.named_data or ()}
        states = {entry.segment_index for entry in program.mutable_data_segments or ()}
        constants = {
            plan.name: [_constant(plan.values[index].val) for index in plan.outputs]
            for plan in program.execution_plan
            if is_constant(plan)
        }
        return Contents(
            file=path.name,
            size_bytes=size_bytes,
            flatbuffer_bytes=flatbuffer_bytes,
            constant_bytes=_constant_bytes(program),
            named_bytes=sum(program.segments[index].size for index in segments),
            named=len(program.named_data or ()),
            state_bytes=sum(program.segments[index].size for index in states),
            methods=tuple(_method(plan, program) for plan in program.execution_plan if not is_constant(plan)),
            constants=constants,
            schema=_schema(constants),
        )
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        raise ArtifactError(
            f"{path} is damaged: its program points to what is not there ({type(error).__name__}: {error})."
            " Copy it again."
        ) from error


def _method(plan: ExecutionPlan, program: Program) -> MethodContents:
    instructions: list[Any] = [
        instruction.instr_args for chain in plan.chains for instruction in chain.instructions
    ]
    calls = Counter(
        operator_name(plan.operators[call.op_index]) for call in instructions if hasattr(call, "op_index")
    )
    return MethodContents(
        plan.name,
        tuple(_value(plan.values[index].val) for index in plan.inputs),
        tuple(_value(plan.values[index].val) for index in plan.outputs),
        _backends(plan, program),
        dict(sorted(calls.items())),
        len(instructions),
        {number: size for number, size in enumerate(plan.non_const_buffer_sizes) if size},
    )


def _value(content: Any) -> Value:
    kind = type(content).__name__
    if kind != "Tensor":
        return Value({"Null": "None"}.get(kind, kind))
    dtype, _ = DTYPES[content.scalar_type]
    return Value(kind, dtype, tuple(content.sizes), SHAPES[int(content.shape_dynamism)])


def _backends(plan: ExecutionPlan, program: Program) -> tuple[Backend, ...]:
    count, size_bytes = Counter(), Counter()
    for delegate in plan.delegates:
        place = delegate.processed
        count[delegate.id] += 1
        inline = place.location.name == "INLINE"
        size_bytes[delegate.id] += (
            len(program.backend_delegate_data[place.index].data)
            if inline
            else program.segments[place.index].size
        )
    return tuple(Backend(name, count[name], size_bytes[name]) for name in sorted(count))


def _constant_bytes(program: Program) -> int:
    """In a segment of their own; older files have them inside the flatbuffer."""
    segment = program.constant_segment
    apart = program.segments[segment.segment_index].size if segment and segment.offsets else 0
    return apart + sum(len(buffer.storage) for buffer in program.constant_buffer or ())


def _constant(content: Any) -> Any:
    """A constant as JSON has it; of a tensor, what it is."""
    kind = type(content).__name__
    if kind in ("Int", "Bool", "Double", "String"):
        return getattr(content, f"{kind.lower()}_val")
    if kind == "Tensor":
        value = _value(content)
        return {"kind": kind, "dtype": value.dtype, "sizes": list(value.sizes or ())}
    return None if kind == "Null" else {"kind": kind}


def _schema(constants: dict[str, list[Any]]) -> dict[str, Any] | None:
    """The program's description of itself, where it is JSON."""
    match constants.get(METHOD):
        case [str(text)]:
            try:
                found = json.loads(text)
            except json.JSONDecodeError:
                return None
            return found if isinstance(found, dict) else None
    return None
