"""Writes layer norm with operators that XNNPACK has, so that a transformer is one delegate."""

from __future__ import annotations

from typing import Any

import torch
from torch.export import ExportedProgram

from edgeexport.compiler.rewrite import Editor, Node, PassResult, aten


def decompose_layer_norm(program: ExportedProgram) -> PassResult:
    """layer_norm(x, [C], g, b) → y = (x - mean) * rsqrt(mean((x - mean)^2) + eps), y * g + b.

    Both means are linear maps with a [1,C] weight of 1/C: XNNPACK takes a mean only over the
    spatial dimensions of an image. The variance is that of centred values, as the kernel computes
    it. When every user of the result is a linear map with a constant weight of its own, g and b go
    into that weight and bias (computed in float64) and cost nothing. A weight that something else
    reads too (a tied embedding) stays as it is: changed, it would have to be stored twice.

    It does not fire when more than the last dimension is normalised, or on half precision.
    """
    return _decomposed(program, into_weights=True)


def decompose_layer_norm_apart(program: ExportedProgram) -> PassResult:
    """`decompose_layer_norm` with g and b always apart: for weights that are going to be quantized.

    In the weights, g makes some columns of a row much larger than others, and they have one scale
    (3 dB, Whisper's encoder).
    """
    return _decomposed(program, into_weights=False)


_DEFAULTS: tuple[Any, ...] = (None, None, 1e-5)
"""Gain, offset and epsilon."""


def _decomposed(program: ExportedProgram, into_weights: bool) -> PassResult:
    editor = Editor(program)
    for node in editor.nodes(aten.layer_norm.default):
        source, normalized, *affine = node.args
        if len(normalized) != 1 or node.meta["val"].dtype is not torch.float32:
            continue
        gain, offset, eps = (*affine, *_DEFAULTS[len(affine) :])[:3]
        _decompose(editor, node, source, normalized[0], gain, offset, eps, into_weights)
    return editor.finish()


def _decompose(
    editor: Editor, node: Node, source: Node, features: int, gain, offset, epsilon: float, into_weights: bool
) -> None:
    mean = editor.shared(f"mean_of_{features}", lambda: torch.full((1, features), 1.0 / features))
    eps = editor.shared(f"eps_{epsilon}", lambda: torch.tensor([epsilon]))
    centred = editor.call(
        aten.sub.Tensor, source, editor.call(aten.linear.default, source, mean, like=node), like=node
    )
    square = editor.call(aten.mul.Tensor, centred, centred, like=node)
    variance = editor.call(aten.linear.default, square, mean, eps, like=node)  # + eps, as the bias
    scale = editor.call(aten.rsqrt.default, variance, like=node)
    result = editor.call(aten.mul.Tensor, centred, scale, like=node)
    users = list(node.users)
    folds = into_weights and gain is not None and users
    if folds and all(_takes_affine(editor, user, node) for user in users):
        for user in users:
            _fold_affine(editor, user, editor.known(gain), editor.value(offset))
    else:
        if gain is not None:
            result = editor.call(aten.mul.Tensor, result, gain, like=node)
        if offset is not None:
            result = editor.call(aten.add.Tensor, result, offset, like=node)
    editor.replace(node, result)


def _takes_affine(editor: Editor, user: Node, node: Node) -> bool:
    """Whether `user` is a linear map of `node` with constant weights."""
    constants = user.args[1:] if user.target is aten.linear.default else ()
    return (
        bool(constants)
        and user.args[0] is node
        and len(constants[0].users) == 1
        and all(c is None or editor.value(c) is not None for c in constants)
    )


def _fold_affine(editor: Editor, linear: Node, gain: torch.Tensor, offset: torch.Tensor | None) -> None:
    """linear(y * g + b) = linear'(y)."""
    weight = editor.known(linear.args[1]).double()
    bias = (
        editor.known(linear.args[2]).double() if len(linear.args) > 2 and linear.args[2] is not None else 0.0
    )
    if offset is not None:
        bias = bias + weight @ offset.double()
    weight = weight * gain.double()
    args = [linear.args[0], editor.constant(f"{linear.args[1].name}_affine", weight.float())]
    if isinstance(bias, torch.Tensor):
        args.append(editor.constant(f"{linear.args[1].name}_affine_bias", bias.float()))
    linear.args = tuple(args)
