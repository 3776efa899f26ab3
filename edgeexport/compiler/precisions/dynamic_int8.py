"""Linear maps in int8: weights once, activations as the program runs."""

from __future__ import annotations

from edgeexport.compiler.calibration import Ranges
from edgeexport.compiler.precision import Kind
from edgeexport.compiler.quantized import dequantized_rows, rounded_per_token
from edgeexport.compiler.rewrite import Editor, Node, aten


def fits(editor: Editor, node: Node) -> bool:
    """Whether a linear map's weight is the model's, and float32. A matrix that stands for something
    else (a mean, a Fourier transform, resizing) stays as it is.
    """
    return editor.is_weight(node.args[1]) and node.meta["val"].dtype.is_floating_point


def quantize(editor: Editor, node: Node, ranges: Ranges) -> None:
    """linear(x, W, b) → linear(rounded(x), dequantized(W), b): a scale each row of W, and each row
    of x.
    """
    source, weight, *bias = node.args
    weight = dequantized_rows(editor, weight, like=node)
    source = rounded_per_token(editor, source, like=node)
    editor.replace(node, editor.call(aten.linear.default, source, weight, *bias, like=node))


KIND = Kind("dynamic_int8", (aten.linear.default,), fits, quantize)
