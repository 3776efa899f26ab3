"""Writes nearest upsampling by whole factors as concatenations; no delegate has the operator."""

from __future__ import annotations

from torch.export import ExportedProgram
from torch.fx import Node

from edgeexport.rewrite import Editor, PassResult, aten, is_symbolic, shape_of

_UPSAMPLES = (aten.upsample_nearest2d.vec, aten.upsample_nearest2d.default)
MAX_FACTOR = 4
"""XNNPACK concatenates up to five tensors in one operator; a larger factor would be two."""


def upsample_nearest_as_cat(program: ExportedProgram) -> PassResult:
    """upsample_nearest2d([B,C,H,W]) to [B,C,h*H,w*W] → in NHWC, each pixel w times in its row, each row h times.

    A pixel's repetitions are a concatenation along the channels, [B*H,W,C] → [B*H,W,w*C], that is read as
    [B*H,w*W,C]; rows likewise. Both copy whole runs of memory, and both stay in the delegate.

    It does not fire on a size that is not a whole multiple up to MAX_FACTOR, on a dynamic C, H or W, or on
    anything but a four-dimensional float tensor.
    """
    editor = Editor(program)
    for node in editor.nodes(*_UPSAMPLES):
        source = node.args[0]
        factors = _factors(shape_of(source)[1:], shape_of(node)[1:])
        if factors is None or not node.meta["val"].is_floating_point():
            continue
        batch, channels, height, width = shape_of(source)
        down, across = factors
        pixels = editor.permute(source, (0, 2, 3, 1), like=node)
        pixels = _repeat(editor, node, pixels, (batch * height, width, channels), across)
        rows = _repeat(editor, node, pixels, (batch, height, across * width * channels), down)
        rows = editor.reshape(rows, (batch, down * height, across * width, channels), like=node)
        editor.replace(node, editor.permute(rows, (0, 3, 1, 2), like=node))
    return editor.finish()


def _factors(before: tuple, after: tuple) -> tuple[int, int] | None:
    """How often each row and each pixel is repeated, or None."""
    if any(map(is_symbolic, (*before, *after))) or any(b % a or b // a > MAX_FACTOR for a, b in zip(before[1:], after[1:])):
        return None
    return after[1] // before[1], after[2] // before[2]


def _repeat(editor: Editor, node: Node, source: Node, shape: tuple, times: int) -> Node:
    """`source` in a shape [..., n, c], with c repeated: [..., n, times * c]."""
    flat = editor.reshape(source, shape, like=node)
    return flat if times == 1 else editor.call(aten.cat.default, [flat] * times, len(shape) - 1, like=node)
