"""Writes a transposed convolution whose windows do not overlap as a linear map."""

from __future__ import annotations

from torch.export import ExportedProgram

from edgeexport.compiler.rewrite import Editor, Node, PassResult, aten, is_symbolic, shape_of


def conv_transpose_as_linear(program: ExportedProgram) -> PassResult:
    """conv_transpose2d(x [B,C,H,W], kernel = stride = (h,w)) → linear C → h*w*D for each pixel,
    then pixels spread.

    With stride equal to the kernel each output pixel has one input pixel. XNNPACK's
    deconvolution does not use that: in SAM2's mask decoder it took a third of the time.

    It does not fire on overlapping windows, padding, output padding, dilation, groups, a weight
    that is not constant, or a dynamic H or W.
    """
    editor = Editor(program)
    for node in editor.nodes(aten.conv_transpose2d.input):
        source, weight, bias, kernel = _arguments(node)
        tensor = editor.value(weight)
        if tensor is None or not kernel or any(map(is_symbolic, shape_of(source)[1:])):
            continue
        batch, _, height, width = shape_of(source)
        channels = tensor.shape[1]
        rows = tensor.permute(2, 3, 1, 0).reshape(-1, tensor.shape[0])
        args = [
            editor.permute(source, (0, 2, 3, 1), like=node),
            editor.constant(f"{weight.name}_linear", rows),
        ]
        if bias is not None:
            repeated = editor.known(bias).repeat(kernel[0] * kernel[1])
            args.append(editor.constant(f"{bias.name}_linear", repeated))
        pixels = editor.call(aten.linear.default, *args, like=node)
        pixels = editor.reshape(pixels, (batch * height, width, *kernel, channels), like=node)
        pixels = editor.permute(pixels, (0, 2, 1, 3, 4), like=node)
        pixels = editor.reshape(pixels, (batch, height * kernel[0], width * kernel[1], channels), like=node)
        editor.replace(node, editor.permute(pixels, (0, 3, 1, 2), like=node))
    return editor.finish()


def _arguments(node: Node):
    """(input, weight, bias, kernel); kernel is empty when the windows overlap or anything else is
    out of the ordinary.
    """
    names = ("input", "weight", "bias", "stride", "padding", "output_padding", "groups", "dilation")
    defaults = {
        "bias": None,
        "stride": [1],
        "padding": [0],
        "output_padding": [0],
        "groups": 1,
        "dilation": [1],
    }
    given = defaults | dict(zip(names, node.args)) | dict(node.kwargs)
    kernel = tuple(shape_of(given["weight"])[2:])
    stride = tuple(given["stride"]) * (2 // len(given["stride"]))
    plain = stride == kernel and given["groups"] == 1 and set(given["dilation"]) == {1}
    plain = plain and not any(given["padding"]) and not any(given["output_padding"])
    return given["input"], given["weight"], given["bias"], kernel if plain else ()
