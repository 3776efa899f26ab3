"""XNNPACK's own graphs, between lowering and serializing: steps that change them, and how to read
them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from executorch.backends.xnnpack import xnnpack_preprocess
from executorch.backends.xnnpack.serialization import xnnpack_graph_schema as schema


@contextlib.contextmanager
def rewritten_graphs(
    *steps: Callable[[schema.XNNGraph], int],
) -> Iterator[dict[bytes, list[tuple[str, int]]]]:
    """Within this, every XNNPACK delegate that is lowered goes through `steps` before it is
    serialized.

    Gives the nodes of each delegate, by the bytes that it became: their kind and debug handle, in
    order. ExecuTorch has no hook there: the serializer is wrapped while this lasts.
    """
    serialize = xnnpack_preprocess.serialize_xnnpack_binary
    delegates: dict[bytes, list[tuple[str, int]]] = {}

    def rewriting(graph, constants):
        for step in steps:
            step(graph)
        content = serialize(graph, constants)
        delegates[content] = [
            (type(n.xnode_union).__name__.removeprefix("XNN"), n.debug_handle) for n in graph.xnodes
        ]
        return content

    xnnpack_preprocess.serialize_xnnpack_binary = rewriting
    try:
        yield delegates
    finally:
        xnnpack_preprocess.serialize_xnnpack_binary = serialize


def tensor_of(value: schema.XValue) -> Any:
    """What describes a value, quantized or not."""
    union = value.xvalue_union
    return union if isinstance(union, schema.XNNTensorValue) else union.tensor_value


def output_of(node: schema.XNode) -> int | None:
    """The id that a node writes."""
    return getattr(node.xnode_union, "output_id", None)


def reads_of(node: schema.XNode) -> list[str]:
    """The names of the fields that hold the ids a node reads."""
    fields = node.xnode_union.__dataclass_fields__
    return [f for f in fields if f.endswith("_id") and not f.startswith("output")]
