"""How far a program may be from what it is to answer: the tolerance of the method, or of a
quantized one what its own graph is from eager.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

from edgeexport.artifact.manifest import Case, MethodEntry
from edgeexport.method import Tolerance
from edgeexport.verify.compare import Comparison


class Allowed:
    """What a method's outputs are allowed, case by case; `golden` and `expected` are the artifact's
    answers of eager and of the program's own graph.
    """

    def __init__(self, entry: MethodEntry, golden: Mapping, expected: Mapping):
        self._entry, self._expected = entry, expected
        self._costs = {} if entry.quality is None else _costs(entry, golden, expected)

    def of(self, case: Case) -> dict[str, Tolerance]:
        """The tolerance of each output of a case, by its name."""
        tolerance, outputs = self._entry.tolerance, [output.name for output in self._entry.outputs]
        if not self._costs:
            return dict.fromkeys(outputs, tolerance)
        counts = {o: self._expected[f"{self._entry.name}/{case.id}/{o}"].numel() for o in outputs}
        return {o: as_far_as_its_graph(tolerance, self._costs[o], counts[o]) for o in outputs}


def as_far_as_its_graph(tolerance: Tolerance, cost: Comparison, count: int) -> Tolerance:
    """What is allowed of an output of `count` values of a quantized program, whose graph costs so
    much.

    Wherever a value lies between two whole numbers, runtime and PyTorch may round it apart, and
    each layer multiplies such places: in a deep network the two end like two roundings of the same
    model, 3 dB farther from each other than each is from eager. As much again is allowed; and of
    few values, what chance may make of them. A wrong kernel is farther.
    """
    margin_db = 6.0 + 10.0 * math.log10(_chance(count))
    return replace(
        tolerance,
        max_abs_relative=max(tolerance.max_abs_relative, cost.max_abs_relative * 10 ** (margin_db / 20)),
        min_sqnr_db=min(tolerance.min_sqnr_db, cost.sqnr_db - margin_db),
    )


def widest(tolerances: Mapping[str, Tolerance]) -> tuple[float, float]:
    """The error over the range and the least SQNR of the output that is allowed most."""
    each = tolerances.values()
    return max(t.max_abs_relative for t in each), min(t.min_sqnr_db for t in each)


def _costs(entry: MethodEntry, golden: Mapping, expected: Mapping) -> dict[str, Comparison]:
    """How far each output of a quantized program's graph, run by PyTorch, is from eager: SQNR over
    all cases together, errors in the worst.
    """
    import torch

    costs = {}
    for output in entry.outputs:
        keys = [f"{entry.name}/{case.id}/{output.name}" for case in entry.cases]
        each = [Comparison.of(expected[key], golden[key]) for key in keys]
        got, want = (torch.cat([t[key].flatten() for key in keys]) for t in (expected, golden))
        costs[output.name] = replace(
            Comparison.of(got, want), max_abs_relative=max(c.max_abs_relative for c in each)
        )
    return costs


def _chance(count: int) -> float:
    """How many times its mean the power of noise may be, once in a thousand, over `count` values
    (chi-squared, by Wilson and Hilferty 1931).
    """
    share = 2.0 / (9.0 * count)
    return (1.0 - share + 3.09 * math.sqrt(share)) ** 3
