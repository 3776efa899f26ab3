"""Gives each of query, key and value its own linear map."""

from __future__ import annotations

import operator

from torch.export import ExportedProgram

from edgeexport.compiler.rewrite import (
    Editor,
    Node,
    PassResult,
    aten,
    is_symbolic,
    only_user,
    product,
    shape_of,
)


def split_linear(program: ExportedProgram) -> PassResult:
    """linear(x, W) → view(..., n, ...) → [permute] → unbind(that n) ⇒ n linears with rows of W.

    The fused form moves 3 x C values through a five-dimensional view and
    permutation only to take them apart; the parts are the same numbers. Also
    for `select` in place of `unbind`.

    It does not fire when the linear or one of the views has another user, when
    the weight is not a constant, or when the dimension taken apart is not a
    whole factor of the linear's output features.
    """
    editor = Editor(program)
    for linear in editor.nodes(aten.linear.default):
        match = _match(editor, linear)
        if match:
            _split(editor, linear, *match)
    return editor.finish()


def _match(editor: Editor, linear: Node):
    """(view, permute or None, takers by index, number of parts, position of the factor) or None."""
    view = only_user(linear)
    if editor.value(linear.args[1]) is None or view is None or view.target is not aten.reshape.default:
        return None
    permute = only_user(view)
    if permute is not None and permute.target is not aten.permute.default:
        permute = None
    last = permute or view
    sizes = shape_of(view)
    takers, dim = _takers(last)
    if not takers:
        return None
    position = permute.args[1][dim] % len(sizes) if permute else dim
    features = shape_of(linear)[-1]
    tail = sizes[position:]
    if any(map(is_symbolic, tail)) or product(tail) != features:
        return None
    return view, permute, takers, sizes[position], position


def _takers(node: Node) -> tuple[dict[int, list[Node]], int]:
    """The nodes that take element i of one dimension of `node`, and that dimension; empty if it is
    used otherwise.
    """
    rank = len(shape_of(node))
    user = only_user(node)
    if user is not None and user.target is aten.unbind.int:
        dim = (user.args[1] if len(user.args) > 1 else 0) % rank
        takers: dict[int, list[Node]] = {}
        for item in user.users:
            if item.target is not operator.getitem:
                return {}, 0
            takers.setdefault(item.args[1], []).append(item)
        return takers, dim
    selects = [u for u in node.users if u.target is aten.select.int]
    dims = {u.args[1] % rank for u in selects}
    if len(selects) != len(node.users) or len(dims) != 1:
        return {}, 0
    dim = dims.pop()
    takers = {}
    for item in selects:
        takers.setdefault(item.args[2] % shape_of(node)[dim], []).append(item)
    return takers, dim


def _split(
    editor: Editor, linear: Node, view: Node, permute: Node | None, takers, parts: int, position: int
) -> None:
    source, weight = linear.args[:2]
    bias = linear.args[2] if len(linear.args) > 2 else None
    rows = editor.known(weight).chunk(parts)
    offsets = editor.known(bias).chunk(parts) if bias is not None else [None] * parts
    sizes = shape_of(view)
    for index, items in takers.items():
        args = [source, editor.constant(f"{weight.name}_{index}", rows[index])]
        if bias is not None:
            args.append(editor.constant(f"{bias.name}_{index}", offsets[index]))
        part = editor.call(aten.linear.default, *args, like=linear)
        part = editor.reshape(part, sizes[:position] + sizes[position + 1 :], like=linear)
        if permute is not None:
            order = [d % len(sizes) for d in permute.args[1]]
            kept = [d - (d > position) for d in order if d != position]
            part = editor.permute(part, kept, like=linear)
        for item in items:
            editor.replace(item, part)
