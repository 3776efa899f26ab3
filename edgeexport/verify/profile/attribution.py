"""The operators that XNNPACK ran → the nodes of its graph, whose lines of source are known."""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence

_SAME = {
    "conv": "convolution",
    "depthwiseconv": "convolution",
    "convtranspose": "deconvolution",
    "div": "divide",
    "avgpooling": "averagepooling",
    "globalavgpooling": "mean",
    "sin": "sine",
    "cos": "cosine",
    "dynamicfullyconnected": "fullyconnected",
    "concatenate2": "copy",
    "concatenate3": "copy",
    "concatenate4": "copy",
    "concatenate5": "copy",
    "square": "multiply",  # what XNNPACK makes of x * x
}
_RUNS_AS = {"convolution": {"convolution", "fullyconnected"}}
"""What XNNPACK may make of a kind of node: a convolution of 1 x 1 is a fully connected layer."""


def kind(name: str) -> str:
    """`Fully Connected (NC, F32) GEMM` and `FullyConnected` alike → `fullyconnected`."""
    plain = re.sub(r"\s", "", name.partition(" (")[0]).lower()
    plain = plain.removeprefix("static").removesuffix("2d")
    return _SAME.get(plain, plain)


def aligned(events: Sequence[str], nodes: Sequence[str]) -> list[int | None]:
    """For each event the node it is, by kind and order; None where that is not sure.

    XNNPACK runs the nodes in order: as many events as nodes, each of which can be its node, are
    those nodes. Where some were dropped, a kind of which as many ran as there are nodes is taken in
    order, and of another kind what stands between the same neighbours.
    """
    ran, there = [kind(e) for e in events], [kind(n) for n in nodes]
    if len(ran) == len(there) and all(e in _RUNS_AS.get(n, {n}) for e, n in zip(ran, there)):
        return list(range(len(ran)))
    blocks = difflib.SequenceMatcher(None, ran, there, autojunk=False).get_matching_blocks()
    found = {block.a + i: block.b + i for block in blocks for i in range(block.size)}
    for name in set(ran):
        here, place = ([i for i, k in enumerate(kinds) if k == name] for kinds in (ran, there))
        if len(here) == len(place):
            found |= zip(here, place)
    return [found.get(i) for i in range(len(ran))]
