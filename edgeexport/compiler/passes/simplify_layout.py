"""Removes operators that change nothing, and merges chains of views and of permutations."""

from __future__ import annotations

from torch.export import ExportedProgram

from edgeexport.compiler.rewrite import Editor, Node, PassResult, aten, is_symbolic, same_shape, shape_of

_COPIES = (
    aten.clone.default,
    aten.contiguous.default,
    aten.alias.default,
    aten.detach.default,
    aten.lift_fresh_copy.default,
    aten.dropout.default,
)
_CASTS = (aten.to.dtype, aten._to_copy.default, aten.to.dtype_layout, aten.to.device)
VIEWS = (
    aten.view.default,
    aten.reshape.default,
    aten._unsafe_view.default,
    aten.unsqueeze.default,
    aten.squeeze.dim,
    aten.squeeze.dims,
    aten.squeeze.default,
    aten.flatten.using_ints,
    aten.unflatten.int,
)
_TRANSPOSES = (aten.transpose.int, aten.t.default, aten.numpy_T.default)


def simplify_layout(program: ExportedProgram) -> PassResult:
    """Cases:

    - a copy (or a copy over something), a cast to the same dtype, a whole slice, an expand, view or
      permute to the same shape and order → its input;
    - unsqueeze, squeeze, flatten, view → reshape, where at most one size is
      symbolic (written -1, so that a backend can take it);
    - transpose → permute;
    - view of view → the outer one; permute of permute → one.

    It does not fire on a copy that is returned: an output must not alias an input.
    """
    editor = Editor(program)
    returned = {arg for n in editor.graph.nodes if n.op == "output" for arg in n.args[0]}
    for node in editor.nodes():
        source = _identity_of(node)
        if source is not None and not (node in returned and source.op == "placeholder"):
            editor.replace(node, source)
        elif node.target in VIEWS:
            _simplify_view(editor, node)
        elif node.target in _TRANSPOSES or node.target is aten.permute.default:
            _simplify_permute(editor, node)
    return editor.finish()


def _identity_of(node: Node) -> Node | None:
    """The input that `node` repeats unchanged, if it does."""
    source = node.args[0] if node.args else None
    if not isinstance(source, Node) or not hasattr(source.meta.get("val"), "dtype"):
        return None
    if node.target in _COPIES:
        return None if node.target is aten.dropout.default and node.args[2] else source
    before, after = source.meta["val"], node.meta["val"]
    if node.target is aten.copy.default:  # what `x[...] += y` leaves: the new value
        new = node.args[1].meta["val"]
        return node.args[1] if same_shape(new.shape, after.shape) and new.dtype == after.dtype else None
    if node.target in _CASTS:
        return source if before.dtype == after.dtype and before.device == after.device else None
    shaped = (
        aten.slice.Tensor,
        aten.expand.default,
        aten.repeat.default,
        aten.repeat_interleave.self_int,
        *VIEWS,
    )
    if node.target in shaped and same_shape(before.shape, after.shape):
        return source
    return None


def _simplify_view(editor: Editor, node: Node) -> None:
    """Write as `reshape` with at most one -1, of the first input of a chain of views."""
    shape = shape_of(node)
    if sum(map(is_symbolic, shape)) > 1:
        return
    source = node.args[0]
    while isinstance(source, Node) and source.target in VIEWS:
        source = source.args[0]
    sizes = [-1 if is_symbolic(s) else s for s in shape]
    if same_shape(shape_of(source), shape):
        editor.replace(node, source)
    elif node.target is not aten.reshape.default or source is not node.args[0] or list(node.args[1]) != sizes:
        editor.replace(node, editor.reshape(source, shape, like=node))


def _simplify_permute(editor: Editor, node: Node) -> None:
    """Write as one `permute` of the first input of a chain of permutations; none where the order is
    kept.
    """
    order = permutation(node)
    source = node.args[0]
    if source.target is aten.permute.default:
        inner = permutation(source)
        order, source = [inner[i] for i in order], source.args[0]
    if order == sorted(order):
        editor.replace(node, source)
    elif node.target is not aten.permute.default or source is not node.args[0]:
        editor.replace(node, editor.permute(source, order, like=node))


def permutation(node: Node) -> list[int]:
    """The order of dimensions of a permute or transpose, all non-negative."""
    rank = len(shape_of(node.args[0]))
    if node.target is aten.permute.default:
        return [d % rank for d in node.args[1]]
    order = list(range(rank))
    if node.target is aten.transpose.int:
        a, b = node.args[1] % rank, node.args[2] % rank
        order[a], order[b] = order[b], order[a]
        return order
    return order[::-1]
