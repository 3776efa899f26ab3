"""Moves a slice before the work whose result it throws away."""

from __future__ import annotations

from typing import Any

from torch.export import ExportedProgram

from edgeexport.compiler.passes.simplify_layout import permutation
from edgeexport.compiler.rewrite import Editor, Node, PassResult, aten, is_symbolic, shape_of

_UNARY = (
    aten.gelu.default,
    aten.relu.default,
    aten.sigmoid.default,
    aten.tanh.default,
    aten.rsqrt.default,
    aten.silu.default,
)
_BINARY = (aten.add.Tensor, aten.sub.Tensor, aten.mul.Tensor, aten.div.Tensor)
_ROWWISE = (aten.linear.default, aten.softmax.int, aten.layer_norm.default)


def slice_early(program: ExportedProgram) -> PassResult:
    """slice(f(x), dim, a, b) → f(slice(x, dim, a, b)), as far back as it goes.

    f: elementwise; linear, softmax and layer norm when another than the last dimension is sliced;
    bmm in its rows; a permutation; a reshape that leaves the dimension as it is; a concatenation,
    of which one part is taken.

    A classifier that reads the class token computes the last block's attention and MLP for
    that token alone: 5 % of an MViT.

    It fires when every user of f(x) is the same slice, with static bounds on a static dimension.
    """
    editor = Editor(program)
    moved = True
    while moved:
        moved = False
        for node in reversed(list(editor.graph.nodes)):
            moved = not node._erased and node.op == "call_function" and _move(editor, node) or moved
    return editor.finish()


def _move(editor: Editor, node: Node) -> bool:
    """Replace the slices that are the only users of `node` by one slice before it."""
    bounds = {slice_bounds(user) for user in node.users}
    found = bounds.pop() if len(bounds) == 1 else None
    if found is None:
        return False
    dim, start, stop = found
    sliced = _sliced(editor, node, dim, start, stop)
    if sliced is None:
        return False
    for user in list(node.users):
        editor.replace(user, sliced)
    editor.graph.erase_node(node)
    return True


def slice_bounds(node: Node) -> tuple[int, int, int] | None:
    """(dim, start, stop) of a static, strictly smaller slice with step 1."""
    if node.target is not aten.slice.Tensor or (len(node.args) > 4 and node.args[4] != 1):
        return None
    arguments: tuple[Any, ...] = (*node.args, 0, None, None)
    source, dim, start, stop = arguments[:4]
    size = shape_of(source)[dim]
    if is_symbolic(size):
        return None
    start, stop = 0 if start is None else start, size if stop is None else stop
    if not isinstance(start, int) or not isinstance(stop, int):
        return None
    start, stop = (max(0, min(size, v + size if v < 0 else v)) for v in (start, stop))
    return (dim % len(shape_of(source)), start, stop) if 0 < stop - start < size else None


def _sliced(editor: Editor, node: Node, dim: int, start: int, stop: int) -> Node | None:
    """`node` computed on sliced operands, or None where the slice cannot go before it."""
    rank = len(shape_of(node))

    def cut(operand, at=dim):
        return editor.call(aten.slice.Tensor, operand, at, start, stop, like=node)

    def again(*args):
        return editor.call(node.target, *args, like=node, **node.kwargs)

    source = node.args[0]
    if node.target in _UNARY or (node.target in _ROWWISE and dim != rank - 1):
        return again(cut(source), *node.args[1:])
    if node.target in _BINARY and all(_cuttable(a, node, dim) for a in node.args[:2]):
        return again(*(cut(a, _aligned(a, rank, dim)) if _spans(a, node, dim) else a for a in node.args[:2]))
    if node.target is aten.bmm.default and dim == 1:
        return again(cut(source), node.args[1])
    if node.target is aten.permute.default:
        return again(cut(source, permutation(node)[dim]), node.args[1])
    if node.target is aten.reshape.default:
        return _before_reshape(editor, node, dim, cut)
    if node.target is aten.cat.default:
        return _part(editor, node, dim, start, stop)
    return None


def _aligned(operand: Node, rank: int, dim: int) -> int:
    """The operand's own index of the result's dimension `dim`, negative when it has none."""
    return dim - (rank - len(shape_of(operand)))


def _spans(operand, node: Node, dim: int) -> bool:
    """Whether the operand has this dimension in full (not broadcast)."""
    if not isinstance(operand, Node):
        return False
    at = _aligned(operand, len(shape_of(node)), dim)
    return at >= 0 and str(shape_of(operand)[at]) == str(shape_of(node)[dim])


def _cuttable(operand, node: Node, dim: int) -> bool:
    at = _aligned(operand, len(shape_of(node)), dim) if isinstance(operand, Node) else -1
    return at < 0 or _spans(operand, node, dim) or str(shape_of(operand)[at]) == "1"


def _before_reshape(editor: Editor, node: Node, dim: int, cut) -> Node | None:
    """A reshape that has the sliced size at the same distance from the front or the back,
    untouched.
    """
    before, after = shape_of(node.args[0]), shape_of(node)
    size = after[dim]
    # Untouched from the back: equal trailing sizes up to and including the dimension.
    tail = len(after) - dim
    if tail <= len(before) and [str(s) for s in before[-tail:]] == [str(s) for s in after[dim:]]:
        at = len(before) - tail
    elif [str(s) for s in before[: dim + 1]] == [str(s) for s in after[: dim + 1]]:
        at = dim
    else:
        return None
    piece = cut(node.args[0], at)
    taken = shape_of(piece)[at]
    shape = [taken if i == dim else s for i, s in enumerate(after)]
    return editor.reshape(piece, shape, like=node) if size != taken else None


def _part(editor: Editor, node: Node, dim: int, start: int, stop: int) -> Node | None:
    """The part of a concatenation that a slice lies in, when it lies in one."""
    along = node.args[1] % len(shape_of(node)) if len(node.args) > 1 else 0
    if along != dim:
        return None
    offset = 0
    for part in node.args[0]:
        size = shape_of(part)[dim]
        if is_symbolic(size):
            return None
        if offset <= start and stop <= offset + size:
            if stop - start == size:
                return part
            return editor.call(aten.slice.Tensor, part, dim, start - offset, stop - offset, like=node)
        offset += size
    return None
