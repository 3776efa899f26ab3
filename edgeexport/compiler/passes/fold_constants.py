"""Computes ahead of time what depends on weights alone."""

from __future__ import annotations

from typing import Any

import torch
from torch.export import ExportedProgram

from edgeexport.compiler.rewrite import Editor, Node, PassResult, aten

GROWTH_LIMIT_BYTES = 4 << 20
"""A folded constant may be this large however small its sources are; past it, it may not exceed
them. 4 MiB holds SAM2's dense position encoding (64 x 64 x 256 float32), which costs more to
compute than to read.
"""

_EXPANSIONS = (aten.expand.default, aten.repeat.default, aten.repeat_interleave.self_int)
_RANDOM = (aten.rand.default, aten.randn.default, aten.dropout.default, aten.bernoulli.p)


def fold_constants(program: ExportedProgram) -> PassResult:
    """op(constants) → constant.

    A node is foldable when everything it reads is a parameter, an unmutated
    buffer, a lifted constant, a plain number or another foldable node, and its
    result does not depend on a symbol or a random generator. Of a foldable
    chain the last node is stored, unless that would store an expanded
    constant (see GROWTH_LIMIT_BYTES; a bare expansion is never stored): then the
    last node before the growth is stored, and the growth stays in the graph.
    """
    editor = Editor(program)
    folded = _evaluate(editor)
    stored = [node for node, value in folded.items() if _may_be_stored(node, value)]
    ends = [node for node in stored if any(user not in stored for user in node.users)]
    for node in ends:
        editor.replace(node, editor.constant(node.name, folded[node]))
    return editor.finish()


def _evaluate(editor: Editor) -> dict[Node, torch.Tensor]:
    """Every foldable node with its value."""
    folded: dict[Node, torch.Tensor] = {}
    for node in editor.nodes():
        if not isinstance(node.meta.get("val"), torch.Tensor) or node.target in _RANDOM:
            continue
        known: dict[torch.fx.Node, Any] = {
            a: folded[a] if a in folded else editor.value(a) for a in node.all_input_nodes
        }
        if any(v is None for v in known.values()) or any(
            isinstance(s, torch.SymInt) for s in node.meta["val"].shape
        ):
            continue
        args, kwargs = torch.fx.map_arg((node.args, node.kwargs), known.__getitem__)
        with torch.no_grad():
            folded[node] = node.target(*args, **kwargs)
    return folded


def _may_be_stored(node: Node, value: torch.Tensor) -> bool:
    """Whether this constant may be kept in the file in this form."""
    if node.target in _EXPANSIONS:
        return False
    sources = sum(_bytes(leaf.meta["val"]) for leaf in _leaves(node))
    return _bytes(value) <= max(GROWTH_LIMIT_BYTES, sources)


def _leaves(node: Node) -> set[Node]:
    """The stored constants that a foldable node is computed from."""
    if node.op == "placeholder":
        return {node}
    return set().union(*(_leaves(a) for a in node.all_input_nodes))


def _bytes(value: torch.Tensor) -> int:
    return value.numel() * value.element_size()
