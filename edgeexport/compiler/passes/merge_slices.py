"""Joins slices that a concatenation puts back together."""

from __future__ import annotations

from torch.export import ExportedProgram

from edgeexport.compiler.passes.slice_early import slice_bounds
from edgeexport.compiler.rewrite import Editor, Node, PassResult, aten, is_symbolic, shape_of


def merge_slices(program: ExportedProgram) -> PassResult:
    """cat([.., x[a:b], x[b:c], ..], dim), sliced along dim → cat([.., x[a:c], ..], dim); the whole
    of x → x.

    Blocks that split their channels, work on one part and concatenate all of them (CSP, YOLO's C2f)
    do this: two copies less.

    It does not fire along a dynamic dimension, or on slices of different tensors or out of order.
    """
    editor = Editor(program)
    for node in editor.nodes(aten.cat.default):
        dim = (node.args[1] if len(node.args) > 1 else 0) % len(shape_of(node))
        parts = [_part(source, dim) for source in node.args[0]]
        merged = [parts[0]]
        for part in parts[1:]:
            source, start, stop = merged[-1]
            if part[0] is source and part[1] == stop is not None:
                merged[-1] = (source, start, part[2])
            else:
                merged.append(part)
        if len(merged) < len(parts):
            operands = [_operand(editor, node, dim, *part) for part in merged]
            editor.replace(
                node,
                (
                    operands[0]
                    if len(operands) == 1
                    else editor.call(aten.cat.default, operands, dim, like=node)
                ),
            )
    return editor.finish()


def _part(node: Node, dim: int) -> tuple[Node, int | None, int | None]:
    """(tensor, start, stop) of a slice along `dim`; a whole tensor has its own bounds, none where
    they are dynamic.
    """
    found = slice_bounds(node)
    if found is not None and found[0] == dim:
        return node.args[0], *found[1:]
    size = shape_of(node)[dim]
    return (node, None, None) if is_symbolic(size) else (node, 0, size)


def _operand(editor: Editor, node: Node, dim: int, source: Node, start: int | None, stop: int | None) -> Node:
    if start is None or (start, stop) == (0, shape_of(source)[dim]):
        return source
    return editor.call(aten.slice.Tensor, source, dim, start, stop, like=node)
