"""Rounds a tensor once for all linear maps that read it, in XNNPACK's own graph."""

from __future__ import annotations

from typing import Any

from executorch.backends.xnnpack.serialization import xnnpack_graph_schema as schema

from edgeexport.compiler.xnnpack_graphs import reads_of, tensor_of


def quantize_once(graph: schema.XNNGraph) -> int:
    """Several conversions of one tensor to int8 with scales chosen as the program runs → the first.

    In the exported program each linear map has its own: the partitioner takes it with the map, and
    one that two partitions shared would leave both. Returns the number of operators removed.
    """
    tensors = {tensor_of(value).id_out: value for value in graph.xvalues}
    first: dict[tuple[int, int], int] = {}
    renamed: dict[int, int] = {}
    for node in graph.xnodes:
        convert = node.xnode_union
        if isinstance(convert, schema.XNNConvert) and _dynamic(tensors[convert.output_id]):
            union: Any = tensors[convert.output_id].xvalue_union
            key = convert.input_id, union.quant_params.num_nonbatch_dims
            renamed[convert.output_id] = first.setdefault(key, convert.output_id)
    gone = {output for output, kept in renamed.items() if output != kept}
    for node in graph.xnodes:
        for name in reads_of(node):
            value = getattr(node.xnode_union, name)
            setattr(node.xnode_union, name, renamed.get(value, value))
    graph.xnodes = [n for n in graph.xnodes if getattr(n.xnode_union, "output_id", None) not in gone]
    graph.xvalues = [v for v in graph.xvalues if tensor_of(v).id_out not in gone]
    return len(gone)


def _dynamic(value: schema.XValue) -> bool:
    """Whether a tensor is int8 with scales that are chosen as the program runs."""
    return tensor_of(value).datatype is schema.XNNDatatype.xnn_datatype_qdint8
