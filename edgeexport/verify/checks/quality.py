"""Is the quantization good: is the answer still that of the float32 model?

`numerics` asks whether the file says what its own graph says; this asks what quantizing cost.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from edgeexport.artifact.cases import GoldenAnswers, answer
from edgeexport.artifact.manifest import MethodEntry
from edgeexport.method import Finding, Quality
from edgeexport.runtime.program import Program
from edgeexport.verify.compare import METRICS, Comparison, finite

SQNR = "SQNR (dB)"


def check(program: Program) -> Iterator[Finding]:
    """One finding for each method and case of a quantized program."""
    golden, random = program.artifact.golden(), program.artifact.manifest.weights.random
    for name in program.methods:
        entry = program.artifact.methods[name]
        if entry.quality is None:
            continue
        for case in program.cases(name):
            answers = answer(program, name, case, GoldenAnswers(golden))
            wanted = [golden[f"{name}/{case.id}/{output.name}"] for output in entry.outputs]
            found = _measured(entry, answers, wanted)
            yield _finding(name, entry.quality, case.id, case.label, found, random)


def _measured(entry: MethodEntry, answers, wanted) -> dict[str, float]:
    """The least SQNR of all outputs, and the metric of each that has one."""
    sqnr_db = min(Comparison.of(*pair).sqnr_db for pair in zip(answers, wanted))
    metrics = {
        output.metric: METRICS[output.metric](got, want)
        for output, got, want in zip(entry.outputs, answers, wanted)
        if output.metric
    }
    return {SQNR: sqnr_db, **metrics}


def _finding(
    method: str, quality: Quality, case: str, label: str, found: Mapping[str, float], random: bool
) -> Finding:
    """Random weights are no evidence of quality: what was measured is said, and nothing is
    judged.
    """
    least = {SQNR: quality.min_sqnr_db, **quality.metrics}
    judged = {name: limit for name, limit in least.items() if name in found and not random}
    passed = all(found[name] >= limit for name, limit in judged.items())
    metrics = {name: value for name, value in found.items() if name != SQNR}
    return Finding(
        "quality",
        method,
        passed,
        f"{label}: " + ", ".join(f"{name} {value:.4g}" for name, value in found.items()),
        ", ".join(f"{name} >= {limit:g}" for name, limit in judged.items())
        or "not judged: random weights are no evidence of quality",
        "" if passed else f"Quantizing costs more than it may ({quality.reason}).",
        {"case": case, "sqnr_db": finite(found[SQNR]), "metrics": metrics},
    )
