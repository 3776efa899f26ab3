"""Merges a chain of reshapes and permutations into one permutation, or none."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import sympy
from torch.export import ExportedProgram

from edgeexport.compiler.passes.lower_rank import MAX_RANK
from edgeexport.compiler.passes.simplify_layout import VIEWS, permutation
from edgeexport.compiler.rewrite import Editor, Node, PassResult, aten, is_symbolic, shape_of


def merge_layout(program: ExportedProgram) -> PassResult:
    """reshape/permute chains with two or more permutations, or of rank above six → reshape,
    permute, reshape; or one reshape.

    The sizes of the chain's source are split into factors; a permutation reorders factors, a
    reshape groups them anew. What is left at the end is one reordering of the source's factors,
    often none: head and window splits, and the transposes around a convolution, undo one another.

    It does not fire on another chain with one permutation, or where a reshape does not split into
    whole factors. A symbolic size stays one factor.
    """
    editor = Editor(program)
    for node in editor.nodes():
        chain = _chain(node)
        permutations = sum(n.target is aten.permute.default for n in chain)
        if permutations > 1 or (permutations and max(len(shape_of(n)) for n in chain) > MAX_RANK):
            merged = _merge(editor, node, chain)
            if merged is not None:
                editor.replace(node, merged)
    return editor.finish()


def _chain(node: Node) -> list[Node]:
    """The layout operators that end in `node`, first to last; empty unless `node` is the end of its
    chain.
    """
    if not _moves(node) or any(_moves(user) for user in node.users):
        return []
    chain = [node]
    while _moves(chain[0].args[0]):
        chain.insert(0, chain[0].args[0])
    return chain


def _moves(node: Node) -> bool:
    return node.op == "call_function" and (node.target in VIEWS or node.target is aten.permute.default)


@dataclass(eq=False)
class _Factor:
    """A factor of a size of the source; splitting it splits it wherever it stands."""

    size: object
    parts: list[_Factor] = field(default_factory=list)

    def flat(self) -> list[_Factor]:
        return [leaf for part in self.parts for leaf in part.flat()] if self.parts else [self]


def _merge(editor: Editor, node: Node, chain: list[Node]) -> Node | None:
    source = chain[0].args[0]
    origin = [_Factor(size) for size in shape_of(source)]
    dims = [[factor] for factor in origin]
    for step in chain:
        if step.target is aten.permute.default:
            dims = [dims[d] for d in permutation(step)]
        else:
            dims = _regroup(
                [leaf for dim in dims for factor in dim for leaf in factor.flat()], shape_of(step)
            )
            if dims is None:
                return None
    before = [leaf for factor in origin for leaf in factor.flat() if not _is_one(leaf)]
    after = [[leaf for factor in dim for leaf in factor.flat() if not _is_one(leaf)] for dim in dims]
    runs = _runs(before, [leaf for dim in after for leaf in dim])
    if len(runs) < 2:
        return editor.reshape(source, shape_of(node), like=node)
    # Where every final dimension is one run, permute those: no reshape stands between the
    # permutation and a convolution, so that a backend in NHWC can fold it.
    if all(len(_runs(before, dim)) == 1 for dim in after) and len(after) <= MAX_RANK:
        runs = after
    order = sorted(range(len(runs)), key=lambda i: before.index(runs[i][0]))
    shape = [_size(runs[i]) for i in order]
    if sum(map(is_symbolic, shape)) > 1:
        return None
    split = editor.reshape(source, shape, like=node)
    moved = editor.permute(split, [order.index(i) for i in range(len(runs))], like=node)
    return editor.reshape(moved, shape_of(node), like=node)


def _regroup(leaves: list[_Factor], shape: tuple) -> list[list[_Factor]] | None:
    """The factors as dimensions of `shape`, splitting where needed; None where they do not
    divide.
    """
    leaves = [leaf for leaf in leaves if not _is_one(leaf)]
    dims = []
    for size in shape:
        dim: list[_Factor] = []
        while str(_size(dim)) != str(size):
            if not leaves:
                return None
            leaf = leaves.pop(0)
            if not _divides(_size([*dim, leaf]), size):
                have = _size(dim)
                if not _divides(have, size) or not _divides(size // have, leaf.size):
                    return None
                leaf.parts = [_Factor(size // have), _Factor(leaf.size // (size // have))]
                leaf, remaining = leaf.parts
                leaves.insert(0, remaining)
            dim.append(leaf)
        dims.append(dim)
    return None if leaves else dims


def _divides(part, whole) -> bool:
    """Whether `part` is a factor of `whole` for every value of their symbols; asked without a
    guard.
    """
    part, whole = (sympy.sympify(v.node.expr if is_symbolic(v) else v) for v in (part, whole))
    return sympy.fraction(whole / part)[1] == 1


def _is_one(factor: _Factor) -> bool:
    """Asked without a guard: a symbolic size is never taken for 1."""
    return not is_symbolic(factor.size) and factor.size == 1


def _size(factors: list[_Factor]):
    """The product of factors; the symbolic one first, so that equal products print alike."""
    result: Any = 1
    for factor in sorted(factors, key=lambda f: not is_symbolic(f.size)):
        result = result * factor.size
    return result


def _runs(before: list[_Factor], after: list[_Factor]) -> list[list[_Factor]]:
    """`after` cut into the longest runs that stand together in `before` too."""
    runs: list[list[_Factor]] = []
    for factor in after:
        if runs and before.index(runs[-1][-1]) + 1 == before.index(factor):
            runs[-1].append(factor)
        else:
            runs.append([factor])
    return runs
