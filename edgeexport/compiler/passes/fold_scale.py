"""Moves a constant factor into the weights that it can be moved into, where it costs nothing."""

from __future__ import annotations

from torch.export import ExportedProgram

from edgeexport.compiler.rewrite import Editor, Node, PassResult, aten, only_user

_LAYOUT = (aten.reshape.default, aten.permute.default)
_PRODUCTS = (aten.bmm.default, aten.matmul.default)


def fold_scale(program: ExportedProgram) -> PassResult:
    """Cases, for a plain number c (the scale of attention, as models write it before or after its
    first product):

    - linear(x, W, b) * c → linear(x, c W, c b), also when reshapes and permutations lie between;
    - bmm(linear(...), k) * c → bmm(linear'(...), k): the left operand is scaled instead of all
      scores;
    - the same for division by c; a factor of 1 goes away.

    It does not fire when anything between has another user, or when the weight is not a constant of
    this linear map alone.
    """
    editor = Editor(program)
    for node in editor.nodes(aten.mul.Tensor, aten.div.Tensor):
        scale = _scale(node)
        if scale is None:
            continue
        if scale == 1.0 and node.args[0].meta["val"].dtype == node.meta["val"].dtype:
            editor.replace(node, node.args[0])
            continue
        linear = _scalable(editor, node.args[0])
        if linear is not None and only_user(node.args[0]) is node:
            weight, bias = linear.args[1], linear.args[2] if len(linear.args) > 2 else None
            args = [linear.args[0], _scaled(editor, weight, scale)]
            if bias is not None:
                args.append(_scaled(editor, bias, scale))
            linear.args = tuple(args)
            editor.replace(node, node.args[0])
    return editor.finish()


def _scale(node: Node) -> float | None:
    """The number that `node` multiplies a float tensor by, or None."""
    factor = node.args[1]
    if (
        not isinstance(factor, (int, float))
        or node.kwargs
        or not node.args[0].meta["val"].is_floating_point()
    ):
        return None
    if node.target is aten.mul.Tensor:
        return float(factor)
    return 1.0 / factor if factor else None


def _scalable(editor: Editor, node: Node) -> Node | None:
    """The linear map that `node` is proportional to, if it can be scaled instead."""
    while node.target in _LAYOUT or node.target in _PRODUCTS:
        if only_user(node.args[0]) is not node:
            return None
        node = node.args[0]
    if node.target is not aten.linear.default:
        return None
    constants = [c for c in node.args[1:] if c is not None]
    return node if all(editor.value(c) is not None and len(c.users) == 1 for c in constants) else None


def _scaled(editor: Editor, constant: Node, scale: float) -> Node:
    value = editor.known(constant)
    return editor.constant(f"{constant.name}_scaled", (value.double() * scale).to(value.dtype))
