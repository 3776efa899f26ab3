"""Writes `select` as a slice and a view, which delegates have."""

from __future__ import annotations

from torch.export import ExportedProgram

from edgeexport.compiler.rewrite import Editor, PassResult, aten, is_symbolic, shape_of


def select_as_slice(program: ExportedProgram) -> PassResult:
    """select(x, dim, i) → reshape(slice(x, dim, i, i + 1), shape without dim).

    It does not fire when i counts from the end of a dynamic dimension, on integer tensors
    (no delegate takes them), or when two sizes of the result are symbolic.
    """
    editor = Editor(program)
    for node in editor.nodes(aten.select.int):
        source, dim, index = node.args
        shape, result = shape_of(source), shape_of(node)
        dim %= len(shape)
        if (
            not isinstance(index, int)
            or not node.meta["val"].is_floating_point()
            or sum(map(is_symbolic, result)) > 1
        ):
            continue
        if index < 0:
            if is_symbolic(shape[dim]):
                continue
            index += shape[dim]
        part = editor.call(aten.slice.Tensor, source, dim, index, index + 1, like=node)
        editor.replace(node, editor.reshape(part, result, like=node))
    return editor.finish()
