"""The operators that XNNPACK ran → the nodes of its graph, whose lines of source are known."""

from __future__ import annotations

import difflib
import re
from collections import Counter
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

    XNNPACK runs the nodes in order, but drops and splits some. A kind of which as many ran as there are nodes is taken in order; of another
    kind, what stands between the same neighbours.
    """
    ran, there = [kind(e) for e in events], [kind(n) for n in nodes]
    blocks = difflib.SequenceMatcher(None, ran, there, autojunk=False).get_matching_blocks()
    found = {block.a + i: block.b + i for block in blocks for i in range(block.size)}
    counts, wanted = Counter(ran), Counter(there)
    for name in counts:
        if counts[name] == wanted[name]:
            found |= zip((i for i, k in enumerate(ran) if k == name), (i for i, k in enumerate(there) if k == name))
    return [found.get(i) for i in range(len(ran))]
