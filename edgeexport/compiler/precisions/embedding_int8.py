"""Embeddings in int8: the rows that are looked up are turned to float32."""

from __future__ import annotations

import torch

from edgeexport.compiler.calibration import Ranges
from edgeexport.compiler.precision import Kind
from edgeexport.compiler.quantized import stored_rows
from edgeexport.compiler.rewrite import Editor, Node, aten

LEAST_BYTES = 1 << 16
"""Smaller tables save nothing that anybody sees."""


def fits(editor: Editor, node: Node) -> bool:
    """Whether the table is a weight of the model, float32, and large."""
    table = editor.value(node.args[0])
    return table is not None and editor.is_weight(node.args[0]) and table.nbytes >= LEAST_BYTES


def quantize(editor: Editor, node: Node, ranges: Ranges) -> None:
    """embedding(W, ids) → embedding(W in int8, ids) as float32 * embedding(scales, ids).

    The rows and scales are those of a linear map with the same weight, so a tied table is stored
    once. ExecuTorch's own operator (quantized_decomposed.embedding_byte) ends the process at an id
    that is out of range, where this is an error; and it needs kernels that an app may not have.
    """
    table, ids = node.args[:2]
    values, scales = stored_rows(editor, table)
    by_row = editor.shared(f"{table.name}_scale_by_row", lambda: editor.known(scales).unsqueeze(1))
    rows = editor.call(aten.embedding.default, values, ids, like=node)
    rows = editor.call(aten._to_copy.default, rows, dtype=torch.float32, like=node)
    scale = editor.call(aten.embedding.default, by_row, ids, like=node)
    editor.replace(node, editor.call(aten.mul.Tensor, rows, scale, like=node))


KIND = Kind("embedding_int8", (aten.embedding.default,), fits, quantize)
