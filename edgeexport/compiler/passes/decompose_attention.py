"""Writes scaled dot-product attention as the three operators that XNNPACK has."""

from __future__ import annotations

from torch.export import ExportedProgram

from edgeexport.compiler.rewrite import Editor, Node, PassResult, aten, is_symbolic, product, shape_of

SCORES_LIMIT_BYTES = 32 << 20
"""Queries are taken in chunks so that one chunk's scores stay below this. Whole, the scores of
SAM2's global blocks (4 heads x 4096 x 4096) take 256 MiB and leave every cache.
"""


def decompose_attention(program: ExportedProgram) -> PassResult:
    """scaled_dot_product_attention(q, k, v) → bmm(softmax(bmm(q * scale, kT)), v), batch and heads
    merged.

    - an additive float mask is added to the scores; a causal, boolean or
      dropout attention is left alone, and so is one with grouped heads;
    - long static queries are taken in chunks (SCORES_LIMIT_BYTES) and joined;
    - no `safe softmax`: PyTorch's own decomposition guards rows that are
      masked whole with eight operators that no delegate takes. Without a mask no such row exists;
      with one the pass does not fire.

    It does not fire when more than one size of the merged operands would be
    symbolic: a view can infer one size only.
    """
    editor = Editor(program)
    for node in editor.nodes(aten.scaled_dot_product_attention.default):
        query, key, value, *rest = node.args
        if _plain(rest, node.kwargs) and _mergeable(query, key, value):
            editor.replace(node, _attention(editor, node, query, key, value))
    return editor.finish()


def _plain(rest: list, kwargs: dict) -> bool:
    """No mask, no dropout, not causal, as many key heads as query heads."""
    names = ("attn_mask", "dropout_p", "is_causal")
    given = dict(zip(names, rest)) | dict(kwargs)
    return not any(given.get(name) for name in (*names, "enable_gqa"))


def _mergeable(*operands: Node) -> bool:
    def symbolic(sizes):
        return sum(map(is_symbolic, sizes))

    shapes = [shape_of(o) for o in operands]
    merged = [(product(s[:-2]), *s[-2:]) for s in shapes]
    return (
        len({len(s) for s in shapes}) == 1
        and all(symbolic(m) <= 1 for m in merged)
        and all(symbolic(s) <= 1 for s in shapes)
    )


def _attention(editor: Editor, node: Node, query: Node, key: Node, value: Node) -> Node:
    shape = shape_of(query)
    scale = node.kwargs.get("scale")
    scale = shape[-1] ** -0.5 if scale is None else scale

    def merged(operand):
        sizes = shape_of(operand)
        return editor.reshape(operand, (product(sizes[:-2]), *sizes[-2:]), like=node)

    rank = len(shape)
    swapped = [*range(rank - 2), rank - 1, rank - 2]
    query = merged(editor.call(aten.mul.Tensor, query, scale, like=node))
    key = merged(editor.permute(key, swapped, like=node))
    value = merged(value)
    chunks = [_attend(editor, node, part, key, value) for part in _chunks(editor, node, query, key)]
    joined = chunks[0] if len(chunks) == 1 else editor.call(aten.cat.default, chunks, 1, like=node)
    return editor.reshape(joined, (*shape[:-1], shape_of(value)[-1]), like=node)


def _attend(editor: Editor, node: Node, query: Node, key: Node, value: Node) -> Node:
    scores = editor.call(aten.bmm.default, query, key, like=node)
    return editor.call(
        aten.bmm.default, editor.call(aten.softmax.int, scores, -1, like=node), value, like=node
    )


def _chunks(editor: Editor, node: Node, query: Node, key: Node) -> list[Node]:
    """The query in equal parts whose scores fit the limit; whole when anything about it is
    symbolic.
    """
    batch, length, _ = shape_of(query)
    keys = shape_of(key)[-1]
    if any(map(is_symbolic, (batch, length, keys))):
        return [query]
    parts = 1
    while batch * (length // parts) * keys * 4 > SCORES_LIMIT_BYTES and length % (2 * parts) == 0:
        parts *= 2
    if parts == 1:
        return [query]
    step = length // parts
    return [
        editor.call(aten.slice.Tensor, query, 1, start, start + step, like=node)
        for start in range(0, length, step)
    ]
