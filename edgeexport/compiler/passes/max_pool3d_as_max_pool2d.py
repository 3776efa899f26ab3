"""Writes a 3-D max pooling over space alone as a 2-D one; the runtime has no 3-D operator."""

from __future__ import annotations

from torch.export import ExportedProgram

from edgeexport.compiler.rewrite import Editor, Node, PassResult, aten, is_symbolic, shape_of


def max_pool3d_as_max_pool2d(program: ExportedProgram) -> PassResult:
    """max_pool3d([B,C,T,H,W], kernel (1,h,w)) → max_pool2d over frames [B*T,C,H,W].

    It does not fire when the window spans frames (kT, stride or padding in time above 1, 1, 0), on
    dilation or ceil mode, or on a dynamic C, T, H or W.
    """
    editor = Editor(program)
    for node in editor.nodes(aten.max_pool3d.default):
        source, kernel, stride, padding, flat = _arguments(node)
        if not flat or any(map(is_symbolic, (*shape_of(source)[1:], *shape_of(node)[1:]))):
            continue
        batch, channels, count, height, width = shape_of(source)
        frames = editor.permute(source, (0, 2, 1, 3, 4), like=node)
        frames = editor.reshape(frames, (batch * count, channels, height, width), like=node)
        pooled = editor.call(aten.max_pool2d.default, frames, kernel, stride, padding, like=node)
        pooled = editor.reshape(pooled, (batch, count, *shape_of(pooled)[1:]), like=node)
        editor.replace(node, editor.permute(pooled, (0, 2, 1, 3, 4), like=node))
    return editor.finish()


def _arguments(node: Node):
    """(input, 2-D kernel, stride, padding, whether the window stays within a frame)."""
    names = ("input", "kernel_size", "stride", "padding", "dilation", "ceil_mode")
    given = {"stride": [], "padding": [0], "dilation": [1], "ceil_mode": False} | dict(zip(names, node.args))
    given |= dict(node.kwargs)
    given["stride"] = given["stride"] or given["kernel_size"]
    kernel, stride, padding, dilation = (
        list(given[n]) * (3 if len(given[n]) == 1 else 1)
        for n in ("kernel_size", "stride", "padding", "dilation")
    )
    flat = (
        (kernel[0], stride[0], padding[0]) == (1, 1, 0) and dilation == [1, 1, 1] and not given["ceil_mode"]
    )
    return given["input"], kernel[1:], stride[1:], padding[1:], flat and len(shape_of(given["input"])) == 5
