"""Writes nearest upsampling by whole factors with operators that XNNPACK has."""

from __future__ import annotations

from torch.export import ExportedProgram

from edgeexport.compiler.rewrite import (
    Editor,
    Node,
    PassResult,
    aten,
    is_symbolic,
    only_user,
    same_shape,
    shape_of,
)

UPSAMPLES = (aten.upsample_nearest2d.vec, aten.upsample_nearest2d.default)
MAX_FACTOR = 4
"""XNNPACK concatenates up to five tensors in one operator; a larger factor would be two."""


def decompose_upsample(program: ExportedProgram) -> PassResult:
    """upsample_nearest2d(x [B,C,H,W]) by whole factors h and w, with channels last:

    - add(upsample(x), y), nothing else reading the upsampled → [B*H,1,W,1,C] + y as [B*H,h,W,w,C]:
      the sum broadcasts, and nothing is copied;
    - otherwise each pixel is concatenated w times along its channels, [B*H,W,C] → [B*H,W,w*C],
      which is read as [B*H,w*W,C]; rows likewise. Both copy whole runs of memory.

    It does not fire on a size that is not a whole multiple up to MAX_FACTOR, on a dynamic C, H or
    W, or on anything but a float tensor.
    """
    editor = Editor(program)
    for node in editor.nodes(*UPSAMPLES):
        found = factors(node)
        if found is None or not node.meta["val"].is_floating_point():
            continue
        total = only_user(node)
        if total is not None and _plain_sum(total):
            _broadcast(editor, node, total, *found)
        else:
            _concatenate(editor, node, *found)
    return editor.finish()


def factors(node: Node) -> tuple[int, int] | None:
    """How often an upsampling repeats each row and each pixel, or None."""
    before, after = shape_of(node.args[0])[1:], shape_of(node)[1:]
    if any(map(is_symbolic, (*before, *after))) or any(
        b % a or b // a > MAX_FACTOR for a, b in zip(before[1:], after[1:])
    ):
        return None
    return after[1] // before[1], after[2] // before[2]


def _plain_sum(node: Node) -> bool:
    """An addition of two different tensors of one shape, unscaled."""
    if node.target is not aten.add.Tensor or node.kwargs or not all(isinstance(a, Node) for a in node.args):
        return False
    left, right = node.args
    return left is not right and same_shape(shape_of(left), shape_of(right))


def _broadcast(editor: Editor, node: Node, total: Node, down: int, across: int) -> None:
    batch, channels, height, width = shape_of(node.args[0])
    other = total.args[1] if total.args[0] is node else total.args[0]
    small = editor.permute(node.args[0], (0, 2, 3, 1), like=total)
    large = editor.permute(other, (0, 2, 3, 1), like=total)
    small = editor.reshape(small, (batch * height, 1, width, 1, channels), like=total)
    large = editor.reshape(large, (batch * height, down, width, across, channels), like=total)
    result = editor.call(aten.add.Tensor, small, large, like=total)
    result = editor.reshape(result, (batch, down * height, across * width, channels), like=total)
    editor.replace(total, editor.permute(result, (0, 3, 1, 2), like=total))


def _concatenate(editor: Editor, node: Node, down: int, across: int) -> None:
    batch, channels, height, width = shape_of(node.args[0])
    pixels = editor.permute(node.args[0], (0, 2, 3, 1), like=node)
    pixels = _repeat(editor, node, pixels, (batch * height, width, channels), across)
    rows = _repeat(editor, node, pixels, (batch, height, across * width * channels), down)
    rows = editor.reshape(rows, (batch, down * height, across * width, channels), like=node)
    editor.replace(node, editor.permute(rows, (0, 3, 1, 2), like=node))


def _repeat(editor: Editor, node: Node, source: Node, shape: tuple, times: int) -> Node:
    """`source` in a shape [..., n, c], with c repeated: [..., n, times * c]."""
    flat = editor.reshape(source, shape, like=node)
    return flat if times == 1 else editor.call(aten.cat.default, [flat] * times, len(shape) - 1, like=node)
