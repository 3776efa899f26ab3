"""Programs → one multi-method `.pte`, with what was delegated and why the rest was not."""

from __future__ import annotations

import contextlib
import gc
import operator
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Protocol

import torch
from executorch.exir import (
    EdgeCompileConfig,
    EdgeProgramManager,
    ExecutorchBackendConfig,
    to_edge_transform_and_lower,
)
from executorch.exir.passes import MemoryPlanningPass
from torch.export import ExportedProgram
from torch.utils._sympy.numbers import int_oo

from edgeexport.artifact.manifest import Delegation, Outside
from edgeexport.compiler.backend_guards import no_backend_guards
from edgeexport.compiler.etrecords import write_etrecords
from edgeexport.compiler.rewrite import Pass
from edgeexport.compiler.shared_weights import share_segments
from edgeexport.compiler.source_lines import DelegateNodes, origins, write_sources
from edgeexport.errors import LoweringError


class ReasoningPartitioner(Protocol):
    """A Partitioner that keeps, by node name, why it refused a node."""

    reasons: dict[str, str]


@dataclass(frozen=True)
class EdgeRecipe:
    """How programs become a `.pte` for one backend at one precision.

    Factories, never shared instances.
    """

    name: str
    precision: str
    passes: tuple[Pass, ...]
    partitioner: Callable[[], ReasoningPartitioner]
    edge_passes: Callable[[], Sequence]
    around: Callable[[], contextlib.AbstractContextManager[DelegateNodes]] = lambda: contextlib.nullcontext(
        {}
    )
    """What holds while a program is lowered; it gives the nodes of each delegate, where it knows
    them.
    """
    etrecord: bool = False
    """Whether ETRecords are kept beside the program."""

    @property
    def settings(self) -> dict[str, Any]:
        """What a user set."""
        return {"etrecord": True} if self.etrecord else {}

    def require(self) -> None:
        """Lowering needs nothing of the machine."""

    def emit(
        self,
        programs: Mapping[str, ExportedProgram],
        path: Path,
        constants: Mapping[str, str] = MappingProxyType({}),
    ) -> dict[str, Delegation]:
        """Lower `programs`, write them to `path`, with SOURCES and what else is kept beside it, and
        say per method what was delegated. Raises LoweringError.

        `constants` are texts by the name of the method that returns each.
        """
        # Each is a Partitioner too, which a Protocol cannot say.
        partitioners: dict[str, Any] = {name: self.partitioner() for name in programs}
        try:
            with no_backend_guards(), self.around() as delegates, _without_collector():
                edge = to_edge_transform_and_lower(
                    dict(programs),
                    partitioner={name: [p] for name, p in partitioners.items()},
                    transform_passes={name: list(self.edge_passes()) for name in programs},
                    # The core ATen check runs before delegation and refuses operators that the
                    # partitioner keeps whole.
                    compile_config=EdgeCompileConfig(_check_ir_validity=False),
                    constant_methods=dict(constants),
                    generate_etrecord=self.etrecord,
                )
                _check_bounds(edge, programs)
                delegation = {name: _delegation(edge, name, partitioners[name].reasons) for name in programs}
                known = origins(edge)
                final = edge.to_executorch(_memory_settings())
                if self.etrecord:
                    write_etrecords(path.parent, known, final)
        except (RuntimeError, AssertionError, ValueError, TypeError, KeyError) as error:
            raise LoweringError(
                f"{self.name} refused the program ({type(error).__name__}: {error})."
            ) from error
        with open(path, "wb") as file:
            final.write_to_file(file)
        share_segments(path)
        write_sources(path.parent, known, final, delegates)
        return delegation


def _memory_settings() -> ExecutorchBackendConfig:
    """How memory is planned.

    Inputs are used where they are: planning a copy of each would double a clip or an image. Buffers
    that calls change lie apart from scratch memory, at the same place for every method: planned
    together, one method's scratch would overwrite another's key-value cache. They are written in
    place, one position and not the whole cache a step.
    """
    planning = MemoryPlanningPass(alloc_graph_input=False, share_mutable_buffers=True)
    return ExecutorchBackendConfig(memory_planning_pass=planning, run_reinplace_pass=True)


@contextlib.contextmanager
def _without_collector() -> Iterator[None]:
    """Lowering makes millions of long-lived graph objects; collecting in between only walks them
    again.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def _check_bounds(edge: EdgeProgramManager, programs: Mapping[str, ExportedProgram]) -> None:
    """Lowering traces again, and may narrow a dynamic size without a word; memory is planned for
    what is left.
    """
    for name, program in programs.items():
        lowered = edge.exported_program(name)
        values = {n.name: n.meta["val"] for n in lowered.graph.nodes if n.op == "placeholder"}
        for user_input in lowered.graph_signature.user_inputs:
            for axis, size in enumerate(getattr(values[user_input], "shape", ())):
                if isinstance(size, torch.SymInt):
                    _check_bound(name, user_input, axis, size, program)


def _check_bound(
    method: str, user_input: object, axis: int, size: torch.SymInt, program: ExportedProgram
) -> None:
    declared = program.range_constraints.get(size.node.expr)
    planned = size.node.shape_env.bound_sympy(size.node.expr).upper
    if declared is None or declared.upper is int_oo:
        raise ValueError(f"dimension {axis} of '{user_input}' in '{method}' has no upper bound")
    if planned < declared.upper:
        raise ValueError(
            f"lowering narrowed dimension {axis} of '{user_input}' in '{method}' from {declared.upper} to"
            f" {planned}"
        )


def _delegation(edge: EdgeProgramManager, name: str, reasons: Mapping[str, str]) -> Delegation:
    module = edge.exported_program(name).graph_module
    delegates, inside = 0, 0
    outside: Counter[tuple[str, str]] = Counter()
    for node in module.graph.nodes:
        if node.op != "call_function" or node.target is operator.getitem:
            continue
        if "executorch_call_delegate" in str(node.target):
            delegates += 1
            lowered = getattr(module, node.args[0].name)
            inside += sum(n.op == "call_function" for n in lowered.original_module.graph.nodes)
        else:
            kind = getattr(node.target, "_name", None) or getattr(node.target, "__name__", str(node.target))
            outside[(kind, reasons.get(node.name) or "the partitioner has no rule for this operator")] += 1
    kinds = tuple(Outside(kind, count, reason) for (kind, reason), count in sorted(outside.items()))
    return Delegation(delegates, inside, kinds)
