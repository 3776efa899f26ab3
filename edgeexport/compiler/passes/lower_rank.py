"""Keeps elementwise operators within the six dimensions that XNNPACK has."""

from __future__ import annotations

from torch.export import ExportedProgram

from edgeexport.compiler.rewrite import Editor, Node, PassResult, aten, is_symbolic, product, shape_of

MAX_RANK = 6
"""XNN_MAX_TENSOR_DIMS.

The partitioner does not look: a delegate with more lowers, and does not load.
"""

_BINARY = (aten.add.Tensor, aten.sub.Tensor, aten.mul.Tensor, aten.div.Tensor)


def lower_rank(program: ExportedProgram) -> PassResult:
    """op(a, b) of rank above six → reshape(op(reshape(a), reshape(b))) with neighbouring dimensions
    merged.

    Dimensions are merged where each operand either has them all or is broadcast over them all:
    relative positions of a video transformer, [B,h,t,y,x,1,k,1] + [B,h,t,y,x,1,1,k], have four
    dimensions in truth.

    It does not fire when six dimensions do not do, or an operand would have two symbolic sizes.
    """
    editor = Editor(program)
    for node in editor.nodes(*_BINARY):
        operands = node.args[:2]
        if len(shape_of(node)) <= MAX_RANK or not all(isinstance(o, Node) for o in operands):
            continue
        shapes = [_aligned(shape_of(o), len(shape_of(node))) for o in operands]
        groups = _groups(shapes, shape_of(node))
        merged = [[product(shape[d] for d in group) for group in groups] for shape in shapes]
        if len(groups) > MAX_RANK or any(sum(map(is_symbolic, m)) > 1 for m in merged):
            continue
        flat = [editor.reshape(o, m, like=node) for o, m in zip(operands, merged)]
        result = editor.call(node.target, *flat, like=node, **node.kwargs)
        editor.replace(node, editor.reshape(result, shape_of(node), like=node))
    return editor.finish()


def _aligned(shape: tuple, rank: int) -> tuple:
    return (1,) * (rank - len(shape)) + shape


def _groups(shapes: list[tuple], result: tuple) -> list[list[int]]:
    """Neighbouring dimensions in which every operand is broadcast alike."""
    groups: list[list[int]] = []
    kinds: list[tuple] = []
    for dim, size in enumerate(result):
        kind = tuple(not is_symbolic(s[dim]) and s[dim] == 1 and str(size) != "1" for s in shapes)
        if kinds and kinds[-1] == kind:
            groups[-1].append(dim)
        else:
            groups.append([dim])
            kinds.append(kind)
    return groups
