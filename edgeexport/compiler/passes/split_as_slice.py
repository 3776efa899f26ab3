"""Writes chunk and split as slices, which delegates have."""

from __future__ import annotations

import operator

from torch.export import ExportedProgram

from edgeexport.compiler.rewrite import Editor, Node, PassResult, aten, is_symbolic, shape_of

_SPLITS = (aten.chunk.default, aten.split.Tensor, aten.split.sizes, aten.split_with_sizes.default)


def split_as_slice(program: ExportedProgram) -> PassResult:
    """chunk, split (x, ..., dim)[i] → slice(x, dim, start of part i, end of part i).

    It does not fire when the dimension is dynamic, on integer tensors (no delegate takes them), or
    when the parts are returned or passed on as a list.
    """
    editor = Editor(program)
    for node in editor.nodes(*_SPLITS):
        source = node.args[0]
        values = node.meta["val"]
        dim = _dim(node) % len(shape_of(source))
        sizes = [value.shape[dim] for value in values]
        taken = all(user.target is operator.getitem for user in node.users)
        if not taken or any(map(is_symbolic, sizes)) or not source.meta["val"].is_floating_point():
            continue
        for item in list(node.users):
            start = sum(sizes[: item.args[1]])
            part = editor.call(aten.slice.Tensor, source, dim, start, start + sizes[item.args[1]], like=item)
            editor.replace(item, part)
    return editor.finish()


def _dim(node: Node) -> int:
    return node.args[2] if len(node.args) > 2 else node.kwargs.get("dim", 0)
