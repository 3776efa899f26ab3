"""Folds transposes in XNNPACK's own graph, where the layout of convolutions is settled."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator
from typing import Any

from executorch.backends.xnnpack import xnnpack_preprocess
from executorch.backends.xnnpack.serialization import xnnpack_graph_schema as schema


@contextlib.contextmanager
def folded_transposes() -> Iterator[dict[bytes, list[tuple[str, int]]]]:
    """Within this, every XNNPACK delegate that is lowered goes through `fold_transposes` before it
    is serialized.

    Gives the nodes of each delegate, by the bytes that it became: their kind and debug handle, in
    order.

    XNNPACK computes convolutions in NHWC; lowering puts a transpose before and after each, after
    all graph passes have run, so the graph is the only place where NCHW → NHWC can meet the NHWC →
    NCHW that a transformer has beside its convolution. ExecuTorch has no hook there: the serializer
    is wrapped while this lasts.
    """
    serialize = xnnpack_preprocess.serialize_xnnpack_binary
    delegates: dict[bytes, list[tuple[str, int]]] = {}

    def folding(graph, constants):
        fold_transposes(graph)
        content = serialize(graph, constants)
        delegates[content] = [
            (type(n.xnode_union).__name__.removeprefix("XNN"), n.debug_handle) for n in graph.xnodes
        ]
        return content

    xnnpack_preprocess.serialize_xnnpack_binary = folding
    try:
        yield delegates
    finally:
        xnnpack_preprocess.serialize_xnnpack_binary = serialize


def fold_transposes(graph: schema.XNNGraph) -> int:
    """transpose(transpose(x)) → one transpose, or x where the order is kept; what nothing reads is
    removed.

    Returns the number of operators removed. A transpose whose result leaves the delegate stays.
    """
    before = len(graph.xnodes)
    external = set(graph.input_ids) | set(graph.output_ids)
    external |= {_tensor(v).id_out for v in graph.xvalues if _tensor(v).flags}
    while _fold_once(graph, external):
        pass
    return before - len(graph.xnodes)


def _fold_once(graph: schema.XNNGraph, external: set[int]) -> bool:
    producers = {_output(n): n for n in graph.xnodes if isinstance(n.xnode_union, schema.XNNStaticTranspose)}
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
        for name in _reads(node):
            value = getattr(node.xnode_union, name)
            while value in renamed:
                value = renamed[value]
            setattr(node.xnode_union, name, value)
    reads = Counter(getattr(n.xnode_union, name) for n in graph.xnodes for name in _reads(n))
    layout = (schema.XNNStaticTranspose, schema.XNNStaticReshape)
    kept = [
        n
        for n in graph.xnodes
        if not isinstance(n.xnode_union, layout) or reads[_output(n)] or _output(n) in external
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
    graph.xvalues = [v for v in graph.xvalues if _tensor(v).id_out in used]
    return changed or removed > 0


def _tensor(value: schema.XValue) -> Any:
    union = value.xvalue_union
    return union if isinstance(union, schema.XNNTensorValue) else union.tensor_value


def _output(node: schema.XNode) -> int | None:
    return getattr(node.xnode_union, "output_id", None)


def _reads(node: schema.XNode) -> list[str]:
    """The names of the fields that hold the ids a node reads."""
    fields = node.xnode_union.__dataclass_fields__
    return [f for f in fields if f.endswith("_id") and not f.startswith("output")]
