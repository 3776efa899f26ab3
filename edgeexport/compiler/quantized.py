"""What kinds write quantized layers with: whole numbers, their scales, and the operators that turn
floats into them and back.
"""

from __future__ import annotations

import operator
from functools import cache
from typing import Any

import torch

from edgeexport.compiler.rewrite import Editor, Node, shape_of

quantized_decomposed: Any = torch.ops.quantized_decomposed

LEAST_SCALE = 2.0**-24
"""The scale of a row of zeros: XNNPACK refuses 0, and what is not a normal number."""


def symmetric_rows(weight: torch.Tensor, bits: int = 8) -> tuple[torch.Tensor, torch.Tensor]:
    """A weight [rows, ...] as whole numbers of so many bits [rows, ...] (int8) and a scale each row
    [rows] (float32).

    Symmetric, without the least number (-128): XNNPACK's weights have no zero point.
    """
    top = 2 ** (bits - 1) - 1
    scales = (weight.flatten(1).abs().amax(1) / top).clamp(min=LEAST_SCALE)
    by_row = scales.reshape(-1, *[1] * (weight.dim() - 1))
    return torch.round(weight / by_row).clamp(-top, top).to(torch.int8), scales


def stored_rows(editor: Editor, weight: Node) -> tuple[Node, Node]:
    """`symmetric_rows` of a weight as constants, once for all layers that read it."""

    @cache
    def rows() -> tuple[torch.Tensor, torch.Tensor]:
        return symmetric_rows(editor.known(weight))

    values = editor.shared(f"{weight.name}_int8", lambda: rows()[0])
    return values, editor.shared(f"{weight.name}_scales", lambda: rows()[1])


def dequantized_rows(editor: Editor, weight: Node, like: Node) -> Node:
    """The floats that a weight's rows become, as XNNPACK reads a weight of qcint8."""
    values, scales = stored_rows(editor, weight)
    count = shape_of(scales)[0]
    zeros = editor.shared(f"zeros_{count}", lambda: torch.zeros(count, dtype=torch.int64))
    dequantize = quantized_decomposed.dequantize_per_channel.default
    return editor.call(dequantize, values, scales, zeros, 0, -127, 127, torch.int8, like=like)


def rounded_per_token(editor: Editor, source: Node, like: Node) -> Node:
    """`source` [..., C] rounded to int8 and back, with a scale and a zero point for each of its
    rows, chosen from their least and greatest value as the program runs.
    """
    q = quantized_decomposed
    chosen = editor.call(q.choose_qparams_per_token_asymmetric.default, source, torch.int8, like=like)
    scales, zeros = (editor.call(operator.getitem, chosen, index, like=like) for index in (0, 1))
    whole = editor.call(q.quantize_per_token.default, source, scales, zeros, -128, 127, torch.int8, like=like)
    return editor.call(
        q.dequantize_per_token.default, whole, scales, zeros, -128, 127, torch.int8, torch.float32, like=like
    )
