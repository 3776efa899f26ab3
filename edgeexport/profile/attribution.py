"""The operators that XNNPACK ran → the nodes of its graph, whose lines of source are known."""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence

_SAME = {
    "conv": "convolution", "depthwiseconv": "convolution", "convtranspose": "deconvolution", "div": "divide", "avgpooling": "averagepooling",
    "globalavgpooling": "mean", "sin": "sine", "cos": "cosine", "dynamicfullyconnected": "fullyconnected",
    "square": "multiply",  # what XNNPACK makes of x * x
}  # fmt: skip


def kind(name: str) -> str:
    """`Fully Connected (NC, F32) GEMM` and `FullyConnected` alike → `fullyconnected`."""
    plain = re.sub(r"\s", "", name.partition(" (")[0]).lower()
    plain = plain.removeprefix("static").removesuffix("2d")
    return _SAME.get(plain, plain)


def aligned(events: Sequence[str], nodes: Sequence[str]) -> list[int | None]:
    """For each event the node it is, by name and order; None where that is not sure.

    XNNPACK runs the nodes in order, but drops some, and copies each part of a concatenation by itself. A kind of which as many ran as there
    are nodes is taken in order; of another kind, what stands between the same neighbours.
    """
    ran = [kind(e) for e in events]
    parts = [(name, index) for index, node in enumerate(nodes) for name in _parts(node)]
    there = [name for name, _ in parts]
    found: dict[int, int] = {}
    if ran != there:
        blocks = difflib.SequenceMatcher(None, ran, there, autojunk=False).get_matching_blocks()
        found = {block.a + i: block.b + i for block in blocks for i in range(block.size)}
    for name in set(ran):
        here, place = ([i for i, k in enumerate(kinds) if k == name] for kinds in (ran, there))
        if len(here) == len(place):
            found |= zip(here, place)
    return [parts[found[i]][1] if i in found else None for i in range(len(ran))]


def _parts(node: str) -> list[str]:
    """The kinds of operators that a node becomes."""
    concatenated = re.fullmatch(r"Concatenate(\d+)", node)
    return ["copy"] * int(concatenated[1]) if concatenated else [kind(node)]
