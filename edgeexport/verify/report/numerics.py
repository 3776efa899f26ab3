"""How far each case of each method is from eager, beside what is allowed."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from edgeexport import text
from edgeexport.artifact.manifest import Manifest, MethodEntry
from edgeexport.method import Finding
from edgeexport.verify.report.svg import Axis, Plot

ROW_PX = 20
SQNR_AXIS = Axis(0.0, 150.0)


@dataclass(frozen=True)
class Answer:
    """One output of one case."""

    output: str
    max_abs: float
    relative: float
    sqnr_db: float


@dataclass(frozen=True)
class Case:
    """One case of a method: its answers, the one with the largest error over the range, and that
    worst one drawn beside the limit.
    """

    label: str
    passed: bool
    measured: str
    metrics: Mapping[str, float]
    answers: tuple[Answer, ...]
    worst: Answer | None = None
    least_sqnr_db: float = math.nan
    error_plot: Markup = Markup()
    sqnr_plot: Markup = Markup()


@dataclass(frozen=True)
class MethodNumerics:
    """The cases of a method, what it is allowed, and the axis that all its plots have."""

    method: str
    limit: float
    min_sqnr_db: float
    reason: str
    quantized: bool
    cases: tuple[Case, ...]
    scale: Markup
    sqnr_scale: Markup


def numerics(manifest: Manifest, findings: Sequence[Finding]) -> list[MethodNumerics]:
    """The methods that `findings` have numerics of, in the manifest's order; all errors on one
    logarithmic axis.
    """
    axis = _axis(manifest, findings)
    found = []
    for entry in manifest.methods:
        cases = [_case(entry, f, axis) for f in findings if f.check == "numerics" and f.method == entry.name]
        if cases:
            tolerance = entry.tolerance
            scales = (
                _scale(axis, 4, lambda v: f"{v:.0e}".replace("e-0", "e-")),
                _scale(SQNR_AXIS, 2, lambda v: f"{v:.0f}"),
            )
            found.append(
                MethodNumerics(
                    entry.name,
                    tolerance.max_abs_relative,
                    tolerance.min_sqnr_db,
                    tolerance.reason,
                    entry.quality is not None,
                    tuple(cases),
                    *scales,
                )
            )
    return found


def worst_of_limit(manifest: Manifest) -> tuple[float, float] | None:
    """The error over the range that is the largest part of what is allowed, and what is allowed;
    None without numerics.
    """
    pairs = [
        (answer.relative, _allowed(entry, finding)[0])
        for entry in manifest.methods
        for finding in manifest.findings
        if finding.check == "numerics" and finding.method == entry.name
        for answer in _answers(finding)
    ]
    return max(pairs, key=lambda pair: (math.isnan(pair[0]), pair[0] / pair[1]), default=None)


def _allowed(entry: MethodEntry, finding: Finding) -> tuple[float, float]:
    """The largest error over the range, and the least SQNR: of the method, or of a quantized one's
    case.
    """
    allowed = finding.details.get("allowed", vars(entry.tolerance))
    return allowed["max_abs_relative"], allowed["min_sqnr_db"]


def _answers(finding: Finding) -> tuple[Answer, ...]:
    outputs = {
        name: facts
        for name, facts in finding.details.items()
        if isinstance(facts, dict) and "sqnr_db" in facts
    }
    return tuple(
        Answer(n, f["max_abs"], f["max_abs_relative"], float(f["sqnr_db"])) for n, f in outputs.items()
    )


def _axis(manifest: Manifest, findings: Sequence[Finding]) -> Axis:
    """Whole powers of ten around all errors and limits."""
    errors = [a.relative for f in findings if f.check == "numerics" for a in _answers(f)]
    limits = [
        _allowed(m, f)[0]
        for m in manifest.methods
        for f in findings
        if f.check == "numerics" and f.method == m.name
    ]
    values = [v for v in errors if v > 0 and math.isfinite(v)] + limits
    return Axis(
        10.0 ** math.floor(math.log10(min(values))),
        10.0 ** math.ceil(math.log10(max(values)) + 0.1),
        logarithmic=True,
    )


def _case(entry: MethodEntry, finding: Finding, axis: Axis) -> Case:
    answers = _answers(finding)
    recorded = {case.id: case for case in entry.cases}.get(finding.details.get("case", ""))
    label = recorded.label if recorded else finding.measured.partition(":")[0]
    if not answers:
        return Case(label, finding.passed, finding.measured, {}, ())
    worst = max(answers, key=lambda a: (math.isnan(a.relative), a.relative))
    least = min(answers, key=lambda a: (not math.isnan(a.sqnr_db), a.sqnr_db)).sqnr_db
    most, least_db = _allowed(entry, finding)
    return Case(
        label,
        finding.passed,
        finding.measured,
        finding.details.get("metrics", {}),
        answers,
        worst,
        least,
        _error_plot(answers, worst, finding.passed, most, axis),
        _sqnr_plot(least, finding.passed, least_db),
    )


def _error_plot(answers: Sequence[Answer], worst: Answer, passed: bool, limit: float, axis: Axis) -> Markup:
    """A bar to the worst output, a dot for each, and the limit."""
    plot = Plot(ROW_PX, f"error over range {text.error(worst.relative)}, allowed {limit:.0e}")
    for tick in axis.ticks():
        plot.vertical(axis.percent(tick), 0, ROW_PX, "grid")
    plot.bar(0, axis.percent(worst.relative), 5, 10, "bar ok" if passed else "bar failed")
    for answer in answers:
        plot.add(
            "circle",
            title=f"{answer.output}: {text.error(answer.relative)}",
            cx=f"{axis.percent(answer.relative)}%",
            cy=10,
            r=3,
            class_="dot",
        )
    plot.vertical(axis.percent(limit), 0, ROW_PX, "limit", f"allowed {limit:.0e}")
    return plot.markup()


def _sqnr_plot(least_db: float, passed: bool, allowed_db: float) -> Markup:
    plot = Plot(ROW_PX, f"SQNR {text.decibels(least_db)}, at least {allowed_db:.0f} dB allowed")
    plot.bar(0, SQNR_AXIS.percent(least_db), 5, 10, "bar second" if passed else "bar failed")
    plot.vertical(SQNR_AXIS.percent(allowed_db), 0, ROW_PX, "limit", f"allowed {allowed_db:.0f} dB")
    return plot.markup()


def _scale(axis: Axis, count: int, label: Callable[[float], str]) -> Markup:
    plot = Plot(16, "scale")
    for tick in axis.ticks(count):
        plot.label(label(tick), axis.percent(tick), 12, "tick")
    return plot.markup()
