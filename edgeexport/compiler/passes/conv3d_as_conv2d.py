"""Writes a 3-D convolution as 2-D convolutions, which mobile delegates have."""

from __future__ import annotations

from typing import Any

import torch
from torch.export import ExportedProgram

from edgeexport.compiler.rewrite import Editor, Node, PassResult, aten, is_symbolic, shape_of


def conv3d_as_conv2d(program: ExportedProgram) -> PassResult:
    """conv3d over [B,C,T,H,W] → 2-D convolutions over frames [B*T,C,H,W].

    - dense (groups = 1): the kT frames that an output frame sees become channels of
      one conv2d with kT*C input channels;
    - grouped: one conv2d a temporal tap over all frames, then the sum of the shifted results. Each
      frame is convolved kT times, but a depthwise convolution is bound by memory, not arithmetic.

    It does not fire on a dilated or `padding="same"` convolution, on weights that are not constant,
    on a dynamic T, H or W, on a temporal stride above 1 when grouped, nor when an operand is
    quantized.
    """
    editor = Editor(program)
    for node in editor.nodes(aten.conv3d.default):
        conv = _arguments(node)
        weight = editor.value(conv["weight"])
        if weight is not None and _supported(node, conv):
            editor.replace(node, (_dense if conv["groups"] == 1 else _grouped)(editor, node, conv, weight))
    return editor.finish()


def _arguments(node: Node) -> dict:
    names = ("input", "weight", "bias", "stride", "padding", "dilation", "groups")
    defaults = {"bias": None, "stride": [1, 1, 1], "padding": [0, 0, 0], "dilation": [1, 1, 1], "groups": 1}
    given = defaults | dict(zip(names, node.args)) | dict(node.kwargs)
    for name in ("stride", "padding", "dilation"):
        given[name] = list(given[name]) * (3 if len(given[name]) == 1 else 1)
    return given


def _supported(node: Node, conv: dict) -> bool:
    plain = conv["dilation"] == [1, 1, 1] and (conv["groups"] == 1 or conv["stride"][0] == 1)
    static = not any(map(is_symbolic, (*shape_of(conv["input"])[1:], *shape_of(node)[1:])))
    return plain and static and node.meta["val"].is_floating_point() and len(shape_of(node)) == 5


def _dense(editor: Editor, node: Node, conv: dict, weight: torch.Tensor) -> Node:
    batch, channels, _, height, width = shape_of(conv["input"])
    frames_out = shape_of(node)[2]
    taps, stride, pad = weight.shape[2], conv["stride"][0], conv["padding"][0]
    frames = editor.permute(conv["input"], (0, 2, 1, 3, 4), like=node)  # [B,T,C,H,W]
    # Padded to whole strides, so that every tap is a plain slice, and a stride a reshape.
    have, need = shape_of(frames)[1], frames_out * stride + taps - 1
    frames = _pad_frames(editor, node, frames, pad, max(0, need - have - pad))
    parts = []
    for tap in range(taps):
        part = editor.call(aten.slice.Tensor, frames, 1, tap, tap + frames_out * stride, like=node)
        if stride > 1:
            part = editor.reshape(part, (batch * frames_out, stride * channels, height, width), like=node)
            part = editor.call(aten.slice.Tensor, part, 1, 0, channels, like=node)
        else:
            part = editor.reshape(part, (batch * frames_out, channels, height, width), like=node)
        parts.append(part)
    stacked = editor.call(aten.cat.default, parts, 1, like=node) if taps > 1 else parts[0]
    kernel = editor.constant(f"{conv['weight'].name}_2d", torch.cat(weight.unbind(2), dim=1))
    out = editor.call(
        aten.conv2d.default, stacked, kernel, conv["bias"], conv["stride"][1:], conv["padding"][1:], like=node
    )
    out = editor.permute(out, (0, 2, 3, 1), like=node)
    out = editor.reshape(out, (batch, frames_out, *shape_of(out)[1:]), like=node)
    return editor.permute(out, (0, 4, 1, 2, 3), like=node)


def _grouped(editor: Editor, node: Node, conv: dict, weight: torch.Tensor) -> Node:
    batch, channels, frames_in, height, width = shape_of(conv["input"])
    frames_out = shape_of(node)[2]
    taps, pad = weight.shape[2], conv["padding"][0]
    frames = editor.permute(conv["input"], (0, 2, 1, 3, 4), like=node)
    frames = editor.reshape(frames, (batch * frames_in, channels, height, width), like=node)
    total: Any = None
    for tap in range(taps):
        kernel = editor.constant(f"{conv['weight'].name}_tap{tap}", weight[:, :, tap])
        out = editor.call(
            aten.conv2d.default,
            frames,
            kernel,
            None,
            conv["stride"][1:],
            conv["padding"][1:],
            [1, 1],
            conv["groups"],
            like=node,
        )
        out = editor.permute(out, (0, 2, 3, 1), like=node)  # channels last, as backends compute it
        # Output frame t reads input frame t + tap - pad: shift by padding or cropping the result,
        # small by then.
        out = editor.reshape(out, (batch, frames_in, *shape_of(out)[1:]), like=node)
        before, after = max(0, pad - tap), max(0, frames_out + tap - pad - frames_in)
        start = max(0, tap - pad)
        if start or start + frames_out - before - after < frames_in:
            out = editor.call(
                aten.slice.Tensor, out, 1, start, start + frames_out - before - after, like=node
            )
        out = _pad_frames(editor, node, out, before, after)
        total = out if total is None else editor.call(aten.add.Tensor, total, out, like=node)
    if conv["bias"] is not None:  # not in a tap: the frames that padding stands in for would lack it
        total = editor.call(aten.add.Tensor, total, conv["bias"], like=node)
    return editor.permute(total, (0, 4, 1, 2, 3), like=node)


def _pad_frames(editor: Editor, node: Node, frames: Node, before: int, after: int) -> Node:
    """[B,T,...] with zero frames before and after."""
    if not before and not after:
        return frames
    padding = [0] * (2 * (len(shape_of(frames)) - 2)) + [before, after]
    return editor.call(aten.constant_pad_nd.default, frames, padding, 0.0, like=node)
