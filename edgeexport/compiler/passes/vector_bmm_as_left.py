"""Lets a stored matrix be the left operand of a product with one vector, where XNNPACK reads it as
it lies.
"""

from __future__ import annotations

from torch.export import ExportedProgram

from edgeexport.compiler.rewrite import Editor, Node, PassResult, aten, is_symbolic, shape_of


def vector_bmm_as_left(program: ExportedProgram) -> PassResult:
    """bmm(a [B,1,K], b), b = transpose of m [B,N,K] → reshape(bmm(m, reshape(a, [B,K,1])),
    [B,1,N]).

    XNNPACK packs the right operand of every product anew: for the scores of one query over 1500
    cached keys that is more work than the product. As the left operand the keys are read in place,
    and the query is what is packed.

    It does not fire when a has more than one row, when b is stored as it is used (the transpose
    would have to be made), when the transpose has other users, or when a size is symbolic.
    """
    editor = Editor(program)
    for node in editor.nodes(aten.bmm.default):
        vector, matrix = node.args
        batch, rows, inner = shape_of(vector)
        columns = shape_of(matrix)[2]
        if rows != 1 or any(map(is_symbolic, (batch, inner, columns))):
            continue
        stored = _stored(matrix)
        if stored is None:
            continue
        left = editor.reshape(stored, (batch, columns, inner), like=node)
        right = editor.reshape(vector, (batch, inner, 1), like=node)
        editor.replace(
            node,
            editor.reshape(
                editor.call(aten.bmm.default, left, right, like=node), (batch, 1, columns), like=node
            ),
        )
    return editor.finish()


def _stored(matrix: Node) -> Node | None:
    """m of `transpose of m`, or of a reshape of that which only merges leading dimensions; None for
    anything else.
    """
    last = matrix
    if matrix.target is aten.reshape.default and tuple(shape_of(matrix)[1:]) == tuple(
        shape_of(matrix.args[0])[-2:]
    ):
        last = matrix.args[0]
    rank = len(shape_of(last))
    swap = [*range(rank - 2), rank - 1, rank - 2]
    if last.target is not aten.permute.default or [d % rank for d in last.args[1]] != swap:
        return None
    return last.args[0] if len(matrix.users) == len(last.users) == 1 else None
