"""Makes one pointwise convolution of two, where that is less work."""

from __future__ import annotations

from torch.export import ExportedProgram

from edgeexport.compiler.rewrite import Editor, Node, PassResult, aten, only_user


def merge_pointwise(program: ExportedProgram) -> PassResult:
    """conv2d(conv2d(x, W1, b1), W2, b2), both 1 x 1 → conv2d(x, W2 W1, W2 b1 + b2), computed in
    float64.

    A feature pyramid widens to its own width and a decoder narrows it again: 96 → 256 → 32 channels
    at full resolution is 96 → 32 in truth.

    It does not fire when the first has another user, when either has a stride, padding or groups,
    when a weight is not constant, or when the merged one would take more multiplications.
    """
    editor = Editor(program)
    for outer in editor.nodes(aten.conv2d.default):
        inner = outer.args[0]
        if not (is_pointwise(editor, outer) and is_pointwise(editor, inner) and only_user(inner) is outer):
            continue
        second, first = (editor.known(n.args[1]).flatten(1).double() for n in (outer, inner))
        (wide_out, middle), narrow_in = second.shape, first.shape[1]
        if wide_out * narrow_in >= middle * (wide_out + narrow_in):
            continue
        biases = [editor.value(n.args[2]) if len(n.args) > 2 else None for n in (inner, outer)]
        bias = sum(
            b
            for b in (second @ biases[0].double() if biases[0] is not None else None, biases[1])
            if b is not None
        )
        args = [
            inner.args[0],
            editor.constant(f"{outer.args[1].name}_merged", (second @ first).float()[:, :, None, None]),
        ]
        if not isinstance(bias, int):
            args.append(editor.constant(f"{outer.args[1].name}_merged_bias", bias.float()))
        editor.replace(outer, editor.call(aten.conv2d.default, *args, like=outer))
    return editor.finish()


def is_pointwise(editor: Editor, node: Node) -> bool:
    """A 1 x 1 convolution in float32 with constant weights and default stride, padding, dilation
    and groups.
    """
    if node.target is not aten.conv2d.default or node.kwargs:
        return False
    weight = editor.value(node.args[1])
    bias = node.args[2] if len(node.args) > 2 else None
    defaults = ([1, 1], [0, 0], [1, 1], 1)
    plain = all(value == default for value, default in zip(node.args[3:], defaults))
    if weight is None or (bias is not None and editor.value(bias) is None):
        return False
    return plain and tuple(weight.shape[2:]) == (1, 1) and str(weight.dtype) == "torch.float32"
