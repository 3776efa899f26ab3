"""Writes a batched matmul as bmm, with one merged batch dimension."""

from __future__ import annotations

from torch.export import ExportedProgram

from edgeexport.compiler.rewrite import Editor, PassResult, aten, is_symbolic, product, same_shape, shape_of


def matmul_as_bmm(program: ExportedProgram) -> PassResult:
    """matmul(a [..., M, K], b [..., K, N]) with equal leading sizes → bmm over the merged leading
    sizes.

    PyTorch's own decomposition expands both operands first; with a dynamic batch that expand is
    outside every delegate. It does not fire on broadcast operands, or when a merged operand would
    have two symbolic sizes.
    """
    editor = Editor(program)
    for node in editor.nodes(aten.matmul.default):
        left, right = node.args
        a, b = shape_of(left), shape_of(right)
        if len(a) < 3 or not same_shape(a[:-2], b[:-2]):
            continue
        merged = [(product(s[:-2]), *s[-2:]) for s in (a, b)]
        result = (*a[:-1], b[-1])
        if any(sum(map(is_symbolic, s)) > 1 for s in (*merged, result)):
            continue
        operands = [editor.reshape(x, s, like=node) for x, s in zip((left, right), merged)]
        editor.replace(
            node, editor.reshape(editor.call(aten.bmm.default, *operands, like=node), result, like=node)
        )
    return editor.finish()
