"""Linear maps with weights in int8 and activations in float32."""

from __future__ import annotations

from edgeexport.compiler.calibration import Ranges
from edgeexport.compiler.precision import Kind
from edgeexport.compiler.precisions.dynamic_int8 import fits
from edgeexport.compiler.quantized import dequantized_rows
from edgeexport.compiler.rewrite import Editor, Node, aten


def quantize(editor: Editor, node: Node, ranges: Ranges) -> None:
    """linear(x, W, b) → linear(x, dequantized(W)) + b, with a scale each row of W.

    The bias is an add of its own: XNNPACK's kernel for float32 and int8 scales a bias with the
    weights, which is wrong and silent.
    """
    source, weight, *bias = node.args
    result = editor.call(aten.linear.default, source, dequantized_rows(editor, weight, like=node), like=node)
    if bias and bias[0] is not None:
        result = editor.call(aten.add.Tensor, result, bias[0], like=node)
    editor.replace(node, result)


KIND = Kind("weight_int8", (aten.linear.default,), fits, quantize)
