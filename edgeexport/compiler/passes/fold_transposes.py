"""Folds transposes in XNNPACK's own graph, where the layout of convolutions is settled."""

from __future__ import annotations

from collections import Counter
from typing import Any

from executorch.backends.xnnpack.serialization import xnnpack_graph_schema as schema

from edgeexport.compiler.xnnpack_graphs import output_of, reads_of, tensor_of


def fold_transposes(graph: schema.XNNGraph) -> int:
    """transpose(transpose(x)) → one transpose, or x where the order is kept; what nothing reads is
    removed.

    XNNPACK computes convolutions in NHWC; lowering puts a transpose before and after each, after
    all graph passes have run, so the graph is the only place where NCHW → NHWC can meet the NHWC →
    NCHW that a transformer has beside its convolution.

    Returns the number of operators removed. A transpose whose result leaves the delegate stays.
    """
    before = len(graph.xnodes)
    external = set(graph.input_ids) | set(graph.output_ids)
    external |= {tensor_of(v).id_out for v in graph.xvalues if tensor_of(v).flags}
    while _fold_once(graph, external):
        pass
    return before - len(graph.xnodes)


def _fold_once(graph: schema.XNNGraph, external: set[int]) -> bool:
    producers = {
        output_of(n): n for n in graph.xnodes if isinstance(n.xnode_union, schema.XNNStaticTranspose)
    }
    renamed: dict[int, int] = {}
    changed = False
    for node in producers.values():
        outer: Any = node.xnode_union
        producer = producers.get(outer.input_id)
        if producer is not None:
            inner: Any = producer.xnode_union
            outer.perm = [inner.perm[d] for d in outer.perm]
            outer.input_id = inner.input_id
            changed = True
        if list(outer.perm) == sorted(outer.perm) and outer.output_id not in external:
            renamed[outer.output_id] = outer.input_id
    for node in graph.xnodes:
        for name in reads_of(node):
            value = getattr(node.xnode_union, name)
            while value in renamed:
                value = renamed[value]
            setattr(node.xnode_union, name, value)
    reads = Counter(getattr(n.xnode_union, name) for n in graph.xnodes for name in reads_of(n))
    layout = (schema.XNNStaticTranspose, schema.XNNStaticReshape)
    kept = [
        n
        for n in graph.xnodes
        if not isinstance(n.xnode_union, layout) or reads[output_of(n)] or output_of(n) in external
    ]
    removed = len(graph.xnodes) - len(kept)
    graph.xnodes = kept
    ids = {
        getattr(n.xnode_union, f)
        for n in kept
        for f in n.xnode_union.__dataclass_fields__
        if f.endswith("_id")
    }
    used = ids | external
    graph.xvalues = [v for v in graph.xvalues if tensor_of(v).id_out in used]
    return changed or removed > 0
