"""How much memory a method will take on a device, from its captured program, before anything is
lowered.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch.export import ExportedProgram

from edgeexport import text
from edgeexport.artifact.manifest import MemoryForecast
from edgeexport.artifact.targets import Target
from edgeexport.errors import UsageError
from edgeexport.runtime import boards

ALIASES = (
    "view",
    "unsqueeze",
    "squeeze",
    "alias",
    "detach",
    "expand",
    "permute",
    "transpose",
    "t",
    "slice",
    "select",
    "getitem",
    "split",
    "chunk",
    "unbind",
)
"""Operators whose answer may lie where their input does; memory planners make no room for it."""


@dataclass(frozen=True)
class Forecast:
    """Bytes: the distinct weights that a method reads, and the most of its activations that are
    alive at once, at the upper bounds of dynamic sizes.
    """

    weight_bytes: int
    live_bytes: int

    def with_weights_of(self, program: ExportedProgram) -> Forecast:
        """With the weights of another form of the program: a quantized one computes on tensors that
        only stand for those of the runtime.
        """
        return Forecast(_weight_bytes(program), self.live_bytes)

    def on(self, target: Target) -> MemoryForecast:
        """Beside the runtime itself: the weights as often as a loaded program of the target has
        them, and the activations.
        """
        peak_bytes = round(target.weight_copies * self.weight_bytes) + self.live_bytes
        return MemoryForecast(self.weight_bytes, self.live_bytes, peak_bytes)


def refuse_unfit(name: str, target: Target, forecasts: Mapping[str, Forecast]) -> None:
    """Raise UsageError where a method is going to take more than the board has."""
    board = boards.board(name)
    for name, each in ((name, forecast.on(target)) for name, forecast in forecasts.items()):
        if each.weight_bytes > board.file_limit_bytes:
            raise UsageError(
                f"'{name}' does not fit {board.name}: its weights are {text.size(each.weight_bytes)}, a"
                f" file may have {text.size(board.file_limit_bytes)}."
            )
        if each.peak_bytes > board.peak_limit_bytes:
            raise UsageError(
                f"'{name}' does not fit {board.name}: at its greatest sizes it is going to take"
                f" {text.size(each.peak_bytes)} ({text.size(each.live_bytes)} of them activations),"
                f" {text.size(board.peak_limit_bytes)} are allowed. Lower its greatest sizes (--batch), or"
                " take a smaller variant."
            )


def forecast(program: ExportedProgram) -> Forecast:
    """Each tensor lives from where it is made to its last use, in the order of the graph; inputs
    live throughout.
    """
    nodes = list(program.graph.nodes)
    homes = {node: _home(node) for node in nodes}
    last = {homes[used]: index for index, node in enumerate(nodes) for used in node.all_input_nodes}
    weights = _weights(program)
    given = sum(_bytes(node) for node in nodes if node.op == "placeholder" and node.name not in weights)
    live = most = given
    ends: dict[int, int] = {}
    for index, node in enumerate(nodes):
        if node.op == "call_function" and homes[node] is node:
            size = _bytes(node)
            live += size
            ends[last.get(node, index)] = ends.get(last.get(node, index), 0) + size
        most = max(most, live)
        live -= ends.pop(index, 0)
    return Forecast(_weight_bytes(program), most)


def _weights(program: ExportedProgram) -> set[str]:
    """The names of the placeholders that are stored."""
    signature = program.graph_signature
    return {
        *signature.inputs_to_parameters,
        *signature.inputs_to_buffers,
        *signature.inputs_to_lifted_tensor_constants,
    }


def _weight_bytes(program: ExportedProgram) -> int:
    weights = _weights(program)
    return sum(_bytes(node) for node in program.graph.nodes if node.name in weights)


def _home(node: torch.fx.Node) -> torch.fx.Node:
    """The node whose memory this one's answer lies in: itself, but for views."""
    while node.op == "call_function" and _name(node) in ALIASES and node.all_input_nodes:
        node = node.all_input_nodes[0]
    return node


def _name(node: torch.fx.Node) -> str:
    target: Any = node.target
    packet = getattr(target, "overloadpacket", None)
    return (packet or target).__name__.removesuffix("_copy")


def _bytes(node: torch.fx.Node) -> int:
    """Of the tensors that a node answers, at the upper bounds of their sizes."""
    value = node.meta.get("val")
    tensors = value if isinstance(value, (tuple, list)) else (value,)
    return sum(_elements(t) * t.element_size() for t in tensors if isinstance(t, torch.Tensor))


def _elements(tensor: torch.Tensor) -> int:
    count = tensor.numel()
    return count if isinstance(count, int) else int(count.node.shape_env.bound_sympy(count.node.expr).upper)
