"""Puts a batch norm into the convolution before it, so that the two are quantized as one."""

from __future__ import annotations

import operator

import torch
from torch.export import ExportedProgram

from edgeexport.compiler.rewrite import Editor, Node, PassResult, aten, only_user


def fold_batch_norm(program: ExportedProgram) -> PassResult:
    """batch_norm(conv2d(x, W, b)) → conv2d(x, W', b'), computed in float64.

    It does not fire when something else reads the convolution, or the norm's other outputs.
    """
    editor = Editor(program)
    for norm in editor.nodes(aten._native_batch_norm_legit_no_training.default):
        conv, *statistics, _, epsilon = norm.args
        taken = list(norm.users)
        if (
            conv.target is aten.conv2d.default
            and only_user(conv) is norm
            and all(user.target is operator.getitem and user.args[1] == 0 for user in taken)
            and all(editor.value(c) is not None for c in (conv.args[1], *statistics))
        ):
            gain, offset, mean, variance = map(editor.known, statistics)
            folded = _folded(editor, conv, gain, offset, mean, variance, epsilon)
            for user in taken:
                editor.replace(user, folded)
            editor.graph.erase_node(norm)
    return editor.finish()


def _folded(
    editor: Editor,
    conv: Node,
    gain: torch.Tensor,
    offset: torch.Tensor,
    mean: torch.Tensor,
    variance: torch.Tensor,
    epsilon: float,
) -> Node:
    source, weight, *rest = conv.args
    bias = rest[0] if rest else None
    factor = gain.double() / (variance.double() + epsilon).sqrt()
    before = 0.0 if bias is None else editor.known(bias).double()
    shifted = (before - mean.double()) * factor + offset.double()
    scaled = editor.known(weight).double() * factor[:, None, None, None]
    return editor.call(
        aten.conv2d.default,
        source,
        editor.constant(f"{weight.name}_normed", scaled.float()),
        editor.constant(f"{weight.name}_normed_bias", shifted.float()),
        *rest[1:],
        like=conv,
    )
