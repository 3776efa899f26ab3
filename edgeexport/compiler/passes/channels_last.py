"""Keeps images as oneDNN's convolutions want them, with the channels of a pixel side by side."""

from __future__ import annotations

import torch
from torch.export import ExportedProgram
from torch.utils.weak import WeakTensorKeyDictionary

from edgeexport.compiler.rewrite import Editor, Node, PassResult, aten, shape_of

_CHANNELS_LAST = WeakTensorKeyDictionary()
"""A weight's copy in this format, which all methods that use the weight share: a package stores it
once.
"""


def channels_last(program: ExportedProgram) -> PassResult:
    """conv2d(x, w) → conv2d(x, w in channels_last); cat([x, ...], 1) → permute(cat([permute(x),
    ...], -1)) before a conv2d.

    A convolution answers in the format of its weight, and what follows keeps it, so the compiler
    has nothing to turn around before the next convolution: in YOLO11n the weights alone make 27 of
    105 transposing loops. Concatenated channels AOTInductor writes contiguous, whatever their parts
    are, unless the channels are the last dimension by name.

    It does not fire on other convolutions, on a weight that is computed, nor on a concatenation
    along another dimension.
    """
    editor = Editor(program)
    for node in editor.nodes(aten.conv2d.default):
        stored = editor.stored(node.args[1])
        if stored is not None and not stored.is_contiguous(memory_format=torch.channels_last):
            if stored not in _CHANNELS_LAST:
                _CHANNELS_LAST[stored] = stored.detach().contiguous(memory_format=torch.channels_last)
            editor.store(node.args[1], _CHANNELS_LAST[stored])
    for node in editor.nodes(aten.cat.default):
        if _joins_channels(node):
            parts = [editor.permute(part, (0, 2, 3, 1), like=node) for part in node.args[0]]
            joined = editor.call(aten.cat.default, parts, -1, like=node)
            editor.replace(node, editor.permute(joined, (0, 3, 1, 2), like=node))
    return editor.finish()


def _joins_channels(node: Node) -> bool:
    along = node.args[1] if len(node.args) > 1 else 0
    return (
        len(shape_of(node)) == 4
        and along in (1, -3)
        and any(user.target is aten.conv2d.default for user in node.users)
    )
