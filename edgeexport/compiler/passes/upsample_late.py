"""Moves nearest upsampling behind the pointwise convolution that reads it."""

from __future__ import annotations

import torch
from torch.export import ExportedProgram

from edgeexport.compiler.passes.decompose_upsample import UPSAMPLES, factors
from edgeexport.compiler.passes.merge_pointwise import is_pointwise
from edgeexport.compiler.rewrite import Editor, Node, PassResult, aten, is_symbolic, only_user, shape_of


def upsample_late(program: ExportedProgram) -> PassResult:
    """A 1 x 1 convolution commutes with the repetition of pixels:

    - conv(upsample(a)) → upsample(conv(a));
    - conv(cat([upsample(a), b, ..], 1)) → upsample(conv(a, Wa)) + conv(cat([b, ..]), Wb) + bias,
      with the columns of W.

    A feature pyramid's top-down path does this at each level. The convolution of the upsampled part
    takes a quarter of the work, and neither the upsampled nor the joined tensor is written.

    It does not fire when something else reads the upsampled or joined tensor, when the convolution
    has a stride, padding or groups or weights that are not constant, when it widens the upsampled
    part (more would have to be repeated), or where decompose_upsample does not.
    """
    editor = Editor(program)
    for conv in editor.nodes(aten.conv2d.default):
        if not is_pointwise(editor, conv) or only_user(conv.args[0]) is not conv:
            continue
        source = conv.args[0]
        if _movable(source, conv):
            editor.replace(conv, _upsampled(editor, conv, source, editor.known(conv.args[1]), conv.args[2:3]))
        elif (
            source.target is aten.cat.default and len(source.args[0]) > 1 and source.args[1:] in ((1,), (-3,))
        ):
            parts = [p for p in source.args[0] if only_user(p) is source and _movable(p, conv)]
            if parts and not any(is_symbolic(shape_of(p)[1]) for p in source.args[0]):
                _split(editor, conv, source.args[0], parts[0])
    return editor.finish()


def _movable(node: Node, conv: Node) -> bool:
    """An upsampling by whole factors of at least as many channels as the convolution returns."""
    return node.target in UPSAMPLES and factors(node) is not None and shape_of(node)[1] >= shape_of(conv)[1]


def _split(editor: Editor, conv: Node, parts: list[Node], upsampled: Node) -> None:
    """The convolution in two: of `upsampled` before its upsampling, and of the other parts, with
    the bias.
    """
    columns = editor.known(conv.args[1]).split([shape_of(p)[1] for p in parts], dim=1)
    others = [p for p in parts if p is not upsampled]
    mine = columns[parts.index(upsampled)]
    weight = torch.cat([c for p, c in zip(parts, columns) if p is not upsampled], 1)
    rest = others[0] if len(others) == 1 else editor.call(aten.cat.default, others, 1, like=conv)
    rest = editor.call(
        aten.conv2d.default,
        rest,
        editor.constant(f"{conv.args[1].name}_rest", weight),
        *conv.args[2:3],
        like=conv,
    )
    editor.replace(
        conv, editor.call(aten.add.Tensor, _upsampled(editor, conv, upsampled, mine, ()), rest, like=conv)
    )


def _upsampled(editor: Editor, conv: Node, upsample: Node, weight: torch.Tensor, bias: tuple) -> Node:
    """upsample(conv(what was upsampled)) with this weight and bias."""
    kernel = editor.constant(f"{conv.args[1].name}_before", weight)
    small = editor.call(aten.conv2d.default, upsample.args[0], kernel, *bias, like=conv)
    return editor.call(upsample.target, small, *upsample.args[1:], like=conv, **upsample.kwargs)
