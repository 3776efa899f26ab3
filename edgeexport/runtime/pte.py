"""What a `.pte` file says about itself, read from its flatbuffer without the runtime."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class MethodFacts:
    """One execution plan: the operators and backends it calls, and the bytes that are planned for it.

    `planned_bytes` is the sum of the arenas the app must provide at the upper bound of every dynamic size; inputs,
    outputs' copies and what a delegate allocates for itself are not in it.
    """

    name: str
    operators: tuple[str, ...]
    backends: tuple[str, ...]
    planned_bytes: int


def plain_name(operator: str) -> str:
    """An operator's name without namespace, overload and the mark of an in-place form: what lowering's renamings leave of it.

    `aten::index_put`, `aten::index_put_` and `aten::index_put.out` are one: index_put.
    """
    name = operator.rpartition("::")[2].partition(".")[0]
    return name if name.endswith("__") else name.rstrip("_")


def read_methods(path: Path) -> tuple[MethodFacts, ...]:
    """The methods of a `.pte`."""
    from executorch.exir._serialize._program import deserialize_pte_binary

    parsed = deserialize_pte_binary(Path(path).read_bytes())
    program = getattr(parsed, "program", parsed)
    return tuple(
        MethodFacts(
            plan.name,
            tuple(sorted({f"{o.name}.{o.overload}" if o.overload else o.name for o in plan.operators})),
            tuple(sorted({d.id for d in plan.delegates})),
            sum(plan.non_const_buffer_sizes),
        )
        for plan in program.execution_plan
    )


def read_constants(path: Path) -> frozenset[str]:
    """sha256 of each constant in a `.pte`: the named weights of delegates by their bytes, the program's own by theirs with what pads them."""
    import hashlib

    from executorch.exir._serialize._flatbuffer_program import _flatbuffer_to_program
    from executorch.exir._serialize._program import _get_extended_header

    data = memoryview(Path(path).read_bytes())
    header = _get_extended_header(data[:64].tobytes())
    if header is None:
        return frozenset()
    program = _flatbuffer_to_program(data[: header.program_size].tobytes())
    segments = data[header.segment_base_offset :]
    pieces = [program.segments[entry.segment_index] for entry in program.named_data or ()]
    found = {hashlib.sha256(segments[p.offset : p.offset + p.size]).hexdigest() for p in pieces}
    constants = program.constant_segment
    if constants and constants.offsets:
        home = program.segments[constants.segment_index]
        ends = [*constants.offsets[1:], home.size]
        found |= {hashlib.sha256(segments[home.offset + start : home.offset + end]).hexdigest() for start, end in zip(constants.offsets, ends)}
    return frozenset(found)
