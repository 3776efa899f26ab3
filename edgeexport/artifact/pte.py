"""What a `.pte` file says about itself, read from its flatbuffer without the runtime."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from edgeexport.errors import ArtifactError

if TYPE_CHECKING:
    from executorch.exir.schema import ExecutionPlan, Program

HEADER_BYTES = 64
"""Where the file's identifier and its extended header are."""


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
    from executorch.exir._serialize._flatbuffer_program import _flatbuffer_to_program

    size_bytes, flatbuffer_bytes = extent(path)
    with open(path, "rb") as file:
        data = file.read(flatbuffer_bytes)
    try:
        program = _flatbuffer_to_program(data)
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


def extent(path: Path) -> tuple[int, int]:
    """The bytes of a `.pte`, and those at its start that are the flatbuffer.

    Raises ArtifactError for a file that is none, or is cut short.
    """
    from executorch.exir._serialize._program import _get_extended_header

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
    header = _get_extended_header(head)
    if header is None:
        return size_bytes, size_bytes
    needed_bytes = max(header.program_size, header.segment_base_offset + header.segment_data_size)
    if size_bytes < needed_bytes:
        raise ArtifactError(
            f"{path} is cut short: it has {size_bytes} bytes, its header says at least {needed_bytes}. Copy"
            " it again."
        )
    return size_bytes, header.program_size


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
