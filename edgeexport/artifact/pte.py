"""What a `.pte` file says about itself, read from its flatbuffer without the runtime."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from edgeexport.artifact.light_executorch import light_executorch
from edgeexport.errors import ArtifactError

if TYPE_CHECKING:
    from executorch.exir.schema import ExecutionPlan, Program

HEADER_BYTES = 64
"""Where the file's identifier and its extended header are."""

ALIGNMENT = 16
"""Bytes to which constants are aligned (executorch.exir.tensor.ALIGNMENT)."""

DTYPES = {
    0: ("uint8", 1), 1: ("int8", 1), 2: ("int16", 2), 3: ("int32", 4), 4: ("int64", 8),
    5: ("float16", 2), 6: ("float32", 4), 7: ("float64", 8),
    8: ("complex32", 4), 9: ("complex64", 8), 10: ("complex128", 16), 11: ("bool", 1),
    12: ("qint8", 1), 13: ("quint8", 1), 14: ("qint32", 4), 15: ("bfloat16", 2), 16: ("quint4x2", 1),
    23: ("float8_e5m2", 1), 24: ("float8_e4m3fn", 1), 27: ("uint16", 2), 28: ("uint32", 4),
}  # fmt: skip
"""PyTorch's name of a dtype, and its bytes, by the number that a program has for it (ScalarType in
ExecuTorch's schema/scalar_type.fbs).
"""


@dataclass(frozen=True)
class MethodFacts:
    """One execution plan: the operators and backends it calls, and the bytes that are planned for
    it.

    `planned_bytes` is the sum of the arenas the app must provide at the upper bound of every
    dynamic size; inputs, outputs' copies and what a delegate allocates for itself are not in it.
    """

    name: str
    operators: tuple[str, ...]
    backends: tuple[str, ...]
    planned_bytes: int


@dataclass(frozen=True)
class ExtendedHeader:
    """Where things are in a `.pte` with segments: the bytes of its flatbuffer, the place of the
    first segment, and the bytes of them all, 0 where the file does not say.

    ExecuTorch writes it behind the file's identifier (docs/source/pte-file-format.md there).
    """

    program_bytes: int
    segments_at: int
    segment_bytes: int

    @classmethod
    def read(cls, head: bytes) -> ExtendedHeader | None:
        """The header in the first HEADER_BYTES of a file; None where there is none."""
        if len(head) < HEADER_BYTES or head[8:12] != b"eh00":
            return None
        length, program_bytes, segments_at, segment_bytes = struct.unpack_from("<IQQQ", head, 12)
        if length < 24:
            return None
        return cls(program_bytes, segments_at, segment_bytes if length > 24 else 0)


def plain_name(operator: str) -> str:
    """An operator's name without namespace, overload and the mark of an in-place form: what
    lowering's renamings leave of it.

    `aten::index_put`, `aten::index_put_` and `aten::index_put.out` are one: index_put.
    """
    name = operator.rpartition("::")[2].partition(".")[0]
    return name if name.endswith("__") else name.rstrip("_")


def is_program(path: Path) -> bool:
    """Whether a file is, by its name or its first bytes, an ExecuTorch program, damaged or not."""
    if path.suffix == ".pte" or not path.is_file():
        return path.suffix == ".pte" and not path.is_dir()
    with open(path, "rb") as file:
        return file.read(8)[4:6] == b"ET"


def read_program(path: Path) -> Program:
    """The program that a `.pte` holds, without its constants and weights.

    Raises ArtifactError for a file that is none, or is damaged.
    """
    size_bytes, flatbuffer_bytes = extent(path)
    with open(path, "rb") as file:
        data = file.read(flatbuffer_bytes)
    try:
        program = parsed(data)
        names = [plan.name for plan in program.execution_plan]
    except (
        AttributeError,
        ArithmeticError,
        LookupError,
        MemoryError,
        RecursionError,
        TypeError,
        ValueError,
        struct.error,
    ) as error:
        # flatbuffers' reader looks wherever the offsets in the file point, and fails as it happens
        # to.
        raise ArtifactError(
            f"{path} is damaged: its program cannot be read ({type(error).__name__}: {error}). Copy it again."
        ) from error
    if not names:
        raise ArtifactError(f"{path} is damaged: it has no method. Copy it again.")
    return program


@light_executorch()
def parsed(flatbuffer: bytes) -> Program:
    """The program in the flatbuffer of a `.pte`; fails as it happens to where that is damaged."""
    from executorch.exir._serialize._flatbuffer_program import _flatbuffer_to_program

    return _flatbuffer_to_program(flatbuffer)


def extent(path: Path) -> tuple[int, int]:
    """The bytes of a `.pte`, and those at its start that are the flatbuffer.

    Raises ArtifactError for a file that is none, or is cut short.
    """
    try:
        with open(path, "rb") as file:
            head = file.read(HEADER_BYTES)
    except OSError as error:
        raise ArtifactError(f"{path} cannot be read ({error.strerror}).") from error
    size_bytes = path.stat().st_size
    if head[4:6] != b"ET":
        raise ArtifactError(
            f"{path} is not an ExecuTorch program: it does not begin like one (`ET12` at byte 4). Was it"
            " downloaded whole, and not as a pointer of Git LFS?"
        )
    header = ExtendedHeader.read(head)
    if header is None:
        return size_bytes, size_bytes
    needed_bytes = max(header.program_bytes, header.segments_at + header.segment_bytes)
    if size_bytes < needed_bytes:
        raise ArtifactError(
            f"{path} is cut short: it has {size_bytes} bytes, its header says at least {needed_bytes}. Copy"
            " it again."
        )
    return size_bytes, header.program_bytes


def is_constant(plan: ExecutionPlan) -> bool:
    """Whether a method only returns what is in the file, as the description that edgeexport puts
    in: it takes nothing, and calls nothing.
    """
    return not plan.inputs and not any(chain.instructions for chain in plan.chains)


def operator_name(operator) -> str:
    """An operator's name with its overload: `aten::add.out`."""
    return f"{operator.name}.{operator.overload}" if operator.overload else operator.name


def read_methods(path: Path) -> tuple[MethodFacts, ...]:
    """The methods of a `.pte`, without those that only return a constant. Raises ArtifactError."""
    return tuple(
        MethodFacts(
            plan.name,
            tuple(sorted({operator_name(operator) for operator in plan.operators})),
            tuple(sorted({delegate.id for delegate in plan.delegates})),
            sum(plan.non_const_buffer_sizes),
        )
        for plan in read_program(path).execution_plan
        if not is_constant(plan)
    )


def read_weights(path: Path) -> dict[str, int]:
    """The bytes of each constant in a `.pte` or `.ptd` by its sha256: delegates' weights as they
    are, the program's own constants with what pads them.
    """
    import hashlib

    from edgeexport.artifact.pte_segments import ProgramFile, read_data_file

    if path.suffix == ".ptd":
        contents = read_data_file(path)
    elif (file := ProgramFile.read(path)) is not None:
        contents = [
            *file.constants(),
            *(file.segments[entry.segment_index] for entry in file.program.named_data or ()),
        ]
    else:
        contents = []
    return {hashlib.sha256(content).hexdigest(): len(content) for content in contents}
