"""Convolutions in int8, weights and activations, with the ranges that calibration found."""

from __future__ import annotations

import torch

from edgeexport.compiler.calibration import Ranges
from edgeexport.compiler.passes.fold_batch_norm import fold_batch_norm
from edgeexport.compiler.precision import Kind
from edgeexport.compiler.quantized import dequantized_rows, quantized_decomposed
from edgeexport.compiler.rewrite import Editor, Node, aten, only_user

LEAST_SCALE = 2.0**-12
"""XNNPACK refuses quotients of scales that are further apart than its requantization goes."""

FUSED = (aten.relu.default, aten.hardtanh.default)
"""XNNPACK computes these with the convolution."""


def fits(editor: Editor, node: Node) -> bool:
    """Whether a convolution's weight is the model's, and float32."""
    return editor.is_weight(node.args[1]) and node.meta["val"].dtype is torch.float32


def observed(node: Node) -> tuple[Node, Node]:
    """What a convolution reads and what it, or the operator that is fused with it, writes."""
    return node.args[0], _last(node)


def quantize(editor: Editor, node: Node, ranges: Ranges) -> None:
    """conv2d(x, W, b) → rounded(conv2d(rounded(x), dequantized(W), b)), a scale each tensor and
    each row of W; with relu where one follows.
    """
    source, weight, *rest = node.args
    last = _last(node)
    weight = dequantized_rows(editor, weight, like=node)
    result = editor.call(
        aten.conv2d.default, _rounded(editor, source, ranges, like=node), weight, *rest, like=node
    )
    if last is not node:
        result = editor.call(last.target, result, *last.args[1:], like=last)
    bounds = ranges[last.name]
    scale, zero = _scale(bounds)
    stored = editor.call(
        quantized_decomposed.quantize_per_tensor.default, result, scale, zero, *_INT8, like=last
    )
    # Each reader has a dequantize of its own, as XNNPACK's partitioner takes it with the reader.
    for user in list(last.users):
        user.replace_input_with(last, _dequantized(editor, stored, like=user))
    editor.replace(last, stored)
    if last is not node:
        editor.graph.erase_node(node)


_INT8 = (-128, 127, torch.int8)


def _last(node: Node) -> Node:
    """The convolution, or what is fused with it."""
    user = only_user(node)
    return user if user is not None and user.target in FUSED else node


def _rounded(editor: Editor, source: Node, ranges: Ranges, like: Node) -> Node:
    """`source` rounded to int8 and back; what a convolution wrote is that already."""
    if source.target is quantized_decomposed.dequantize_per_tensor.default:
        return source
    scale, zero = _scale(ranges[source.name])
    whole = editor.call(
        quantized_decomposed.quantize_per_tensor.default, source, scale, zero, *_INT8, like=like
    )
    return _dequantized(editor, whole, like)


def _dequantized(editor: Editor, whole: Node, like: Node) -> Node:
    _, scale, zero, *_ = whole.args
    return editor.call(
        quantized_decomposed.dequantize_per_tensor.default, whole, scale, zero, *_INT8, like=like
    )


def _scale(bounds: tuple[float, float]) -> tuple[float, int]:
    """Scale and zero point of a range, which is widened to hold 0: padding is exact then."""
    low, high = min(bounds[0], 0.0), max(bounds[1], 0.0)
    scale = max((high - low) / 255, LEAST_SCALE)
    return scale, max(-128, min(127, round(-128 - low / scale)))


KIND = Kind(
    "static_int8", (aten.conv2d.default,), fits, quantize, observed=observed, before=(fold_batch_norm,)
)
