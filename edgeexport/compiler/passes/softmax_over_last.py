"""Moves the dimension of a softmax to the end, where delegates compute it."""

from __future__ import annotations

from torch.export import ExportedProgram

from edgeexport.compiler.rewrite import Editor, PassResult, aten, shape_of


def softmax_over_last(program: ExportedProgram) -> PassResult:
    """softmax(x, dim) → permute(softmax(permute(x), -1)) for any dim but the last; log_softmax is
    left alone.

    XNNPACK has a softmax over the last dimension only. Detectors take one over the bins of a
    distribution in dimension 1.

    It does not fire on the last dimension, or where the softmax casts to another dtype.
    """
    editor = Editor(program)
    for node in editor.nodes(aten.softmax.int, aten._softmax.default):
        source, dim, *rest = node.args
        rank = len(shape_of(source))
        if dim % rank == rank - 1 or node.kwargs or any(rest):
            continue
        order = [d for d in range(rank) if d != dim % rank] + [dim % rank]
        last = editor.call(node.target, editor.permute(source, order, like=node), rank - 1, *rest, like=node)
        editor.replace(node, editor.permute(last, [order.index(d) for d in range(rank)], like=node))
    return editor.finish()
