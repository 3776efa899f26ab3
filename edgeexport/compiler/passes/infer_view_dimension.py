"""Keeps a dynamic program delegable: one -1 a view, and no expand that expands nothing (edge
dialect).
"""

from __future__ import annotations

from typing import Any

import torch
from executorch.exir.dialects._ops import ops as exir_ops
from executorch.exir.pass_base import ExportPass
from executorch.exir.pass_base import PassResult as EdgePassResult

from edgeexport.compiler.rewrite import Node, is_symbolic, same_shape

edge: Any = exir_ops.edge.aten


class InferViewDimension(ExportPass):
    """Cases, on the edge dialect after decomposition:

    - view_copy(x, [.., s0*8, ..]) with exactly one symbolic size → the same with -1: XNNPACK's
      reshape infers one dimension and refuses a symbol;
    - view_copy and expand_copy to the shape that their input has → the input;
    - arithmetic on sizes that nothing uses any more → nothing. Left in, it splits partitions
      ("found dependency cycles").

    Views with two symbolic sizes are left alone. It runs at this level because edge
    decomposition writes every -1 of the captured graph as a symbol again.
    """

    def call(self, graph_module: torch.fx.GraphModule) -> EdgePassResult:
        changes = 0
        for node in list(graph_module.graph.nodes):
            if node.op != "call_function" or node.target not in (
                edge.view_copy.default,
                edge.expand_copy.default,
            ):
                continue
            source = node.args[0]
            if same_shape(source.meta["val"].shape, node.meta["val"].shape) and source.op == "call_function":
                node.replace_all_uses_with(source)
                changes += 1
            elif node.target is edge.view_copy.default:
                changes += self._infer(node)
        graph_module.graph.eliminate_dead_code()
        graph_module.recompile()
        return EdgePassResult(graph_module, changes > 0)

    @staticmethod
    def _infer(node: Node) -> bool:
        shape = node.meta["val"].shape
        sizes = [-1 if is_symbolic(size) else size for size in shape]
        if sizes.count(-1) != 1 or sizes == list(node.args[1]):
            return False
        node.args = (node.args[0], sizes)
        return True
