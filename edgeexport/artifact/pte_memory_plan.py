"""Where and how long each planned tensor of a `.pte` lives, read from its flatbuffer without the
runtime.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edgeexport.artifact.pte import DTYPES, is_constant, operator_name, read_program

STATE_ARENA = 2
"""Where lowering puts the buffers that calls change, at the same place for every method
(`share_mutable_buffers`); they live on between calls.
"""


@dataclass(frozen=True)
class Lifetime:
    """A planned tensor: its place in an arena, and the first and the last instruction that touch
    it. `shape` is that at the upper bounds.
    """

    arena: int
    offset: int
    size_bytes: int
    first: int
    last: int
    dtype: str
    shape: tuple[int, ...]


@dataclass(frozen=True)
class MemoryPlan:
    """The planned memory of a method over its instructions.

    `arena_bytes` has the size of each arena by its number; the planner makes one a little larger
    than its tensors. `instructions` names what each calls: an operator, or a backend.
    """

    method: str
    instructions: tuple[str, ...]
    arena_bytes: dict[int, int]
    tensors: tuple[Lifetime, ...]

    @property
    def planned_bytes(self) -> int:
        """What the app must provide for the method."""
        return sum(self.arena_bytes.values())

    def live_bytes(self) -> list[int]:
        """Bytes of the tensors that are alive at each instruction; where views share memory it
        counts once.
        """
        alive: list[list[Lifetime]] = [[] for _ in self.instructions]
        for tensor in sorted(self.tensors, key=lambda t: (t.arena, t.offset)):
            for number in range(tensor.first, tensor.last + 1):
                alive[number].append(tensor)
        return [_covered(tensors) for tensors in alive]


def _covered(tensors: Iterable[Lifetime]) -> int:
    """Bytes that any of `tensors` lies on; they are in the order of their places."""
    total, arena, reached = 0, 0, 0
    for tensor in tensors:
        if tensor.arena != arena:
            arena, reached = tensor.arena, 0
        end = tensor.offset + tensor.size_bytes
        total += max(end - max(tensor.offset, reached), 0)
        reached = max(reached, end)
    return total


def read_memory_plans(path: Path) -> tuple[MemoryPlan, ...]:
    """The memory plan of each method of a `.pte` that computes something."""
    return tuple(_memory_plan(plan) for plan in read_program(path).execution_plan if not is_constant(plan))


def _memory_plan(plan) -> MemoryPlan:
    instructions = [each.instr_args for chain in plan.chains for each in chain.instructions]
    end = max(len(instructions) - 1, 0)
    touched: dict[int, list[int]] = {}
    for number, instruction in enumerate(instructions):
        for value in _planned(plan, _values_of(instruction)):
            touched.setdefault(value, []).append(number)
    for value in _planned(plan, plan.outputs):
        touched.setdefault(value, []).append(end)  # the app reads it after the last instruction
    tensors = tuple(_lifetime(plan.values[value].val, numbers, end) for value, numbers in touched.items())
    arenas = {number: size for number, size in enumerate(plan.non_const_buffer_sizes) if size}
    return MemoryPlan(plan.name, tuple(_called(plan, each) for each in instructions), arenas, tensors)


def _values_of(instruction) -> list[int]:
    """The values that an instruction reads or writes."""
    single = (
        getattr(instruction, name, None)
        for name in ("move_from", "move_to", "cond_value_index", "value_index")
    )
    return [*getattr(instruction, "args", ()), *(value for value in single if value is not None)]


def _planned(plan, values: Iterable[int]) -> set[int]:
    """Those of `values` that are planned tensors; those in lists too."""
    found = set()
    for value in values:
        # -1 is None in a list of optional tensors
        content: Any = plan.values[value].val if value >= 0 else None
        if type(content).__name__ in ("TensorList", "OptionalTensorList"):
            found |= _planned(plan, content.items)
        elif getattr(content, "allocation_info", None) is not None:
            found.add(value)
    return found


def _lifetime(tensor, touched: list[int], end: int) -> Lifetime:
    place, (dtype, item_bytes) = tensor.allocation_info, DTYPES[tensor.scalar_type]
    first, last = (0, end) if place.memory_id >= STATE_ARENA else (min(touched), max(touched))
    return Lifetime(
        place.memory_id,
        place.memory_offset,
        math.prod(tensor.sizes) * item_bytes,
        first,
        last,
        dtype,
        tuple(tensor.sizes),
    )


def _called(plan, instruction) -> str:
    kind = type(instruction).__name__
    if kind == "KernelCall":
        return operator_name(plan.operators[instruction.op_index])
    return plan.delegates[instruction.delegate_index].id if kind == "DelegateCall" else kind
