"""Latency distributions from bench files: every sample of every contender, a method, size and
thread count at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from edgeexport import text
from edgeexport.verify.report.svg import Axis, Plot

ROW_PX, BAND_PX = 46, 16
DRAWN_SAMPLES = 120
"""Samples that are drawn of each contender, picked evenly from all in order."""


@dataclass(frozen=True)
class Race:
    """The contenders of one method at one size with one number of threads."""

    title: str
    baseline: str
    rounds: int
    contenders: tuple[dict, ...]
    plot: Markup
    notes: tuple[str, ...]


def races(bench: dict) -> list[Race]:
    """The rows of a bench file, drawn."""
    return [_race(row) for row in bench["rows"] if _measured(row)]


def ratios(bench: dict) -> list[tuple[str, dict[str, str]]]:
    """For each row of a bench file what was timed, and the ratio to the baseline of each contender
    by name.
    """
    return [
        (
            f"{_title(row)}: x {row['baseline']}",
            {c["name"]: ratio(c["ratio"]) for c in row["contenders"] if c.get("ratio") is not None},
        )
        for row in bench["rows"]
    ]


def ratio(found: dict) -> str:
    """A ratio with its spread."""
    return "{median:.2f} ({low:.2f} to {high:.2f})".format(**found)


def _title(row: dict) -> str:
    return ", ".join(
        filter(None, (row["method"], text.sizes_label(row["sizes"]), text.count(row["threads"], "thread")))
    )


def _race(row: dict) -> Race:
    title = _title(row)
    contenders = _measured(row)
    axis = Axis(0.0, _axis_end(contenders))
    plot = Plot(
        ROW_PX * len(contenders) + 20,
        f"Latency of {title}: "
        + "; ".join(f"{c['name']} median {text.milliseconds(c['p50_ms'])} ms" for c in contenders),
    )
    plot.grid(
        axis,
        4,
        ROW_PX * len(contenders) + 2,
        [f"{tick:g} ms" if not index else f"{tick:g}" for index, tick in enumerate(axis.ticks())],
    )
    for index, contender in enumerate(contenders):
        _strip(plot, axis, contender, ROW_PX * index, contender["name"] == row["baseline"])
    return Race(
        title,
        row["baseline"],
        row["rounds"],
        tuple(contenders),
        plot.markup(),
        (*_errors(row), *_notes(contenders, axis)),
    )


def _measured(row: dict) -> list[dict]:
    return [c for c in row["contenders"] if "error" not in c]


def _errors(row: dict) -> list[str]:
    return [f"{c['name']} was not measured: {c['error']}" for c in row["contenders"] if "error" in c]


def _axis_end(contenders: Sequence[dict]) -> float:
    """A little beyond the slowest sample; where one is far from all others, a little beyond what 95
    of 100 take.
    """
    slowest, usual = (
        max(values) for values in zip(*((max(c["samples_ms"]), c["p95_ms"]) for c in contenders))
    )
    return 1.05 * (slowest if slowest < 1.5 * usual else 1.25 * usual) or 1.0


def _strip(plot: Plot, axis: Axis, contender: dict, top: float, baseline: bool) -> None:
    """Name and median over a box from the 25th to the 75th percentile, the median's line, and the
    samples as dots.
    """
    samples = sorted(contender["samples_ms"])
    plot.label(f"{contender['name']}  {text.milliseconds(contender['p50_ms'])} ms", 0, top + 14, "name")
    middle, colour = top + 20 + BAND_PX / 2, "second" if baseline else "ok"
    quarter, half, three_quarters = (axis.percent(_percentile(samples, p)) for p in (25, 50, 75))
    plot.vertical(
        half, top + 19, top + 21 + BAND_PX, "median", f"median {text.milliseconds(contender['p50_ms'])} ms"
    )
    plot.bar(
        quarter, three_quarters, top + 20, BAND_PX, f"box {colour}", "from the 25th to the 75th percentile"
    )
    for index, sample in enumerate(_picked(samples)):
        beyond = " beyond" if sample > axis.high else ""
        plot.add(
            "circle",
            cx=f"{axis.percent(sample)}%",
            cy=middle + (index * 7 % 11 - 5),
            r=2,
            class_=f"sample {colour}{beyond}",
        )


def _picked(samples: list[float]) -> list[float]:
    if len(samples) <= DRAWN_SAMPLES:
        return samples
    return [samples[round(i * (len(samples) - 1) / (DRAWN_SAMPLES - 1))] for i in range(DRAWN_SAMPLES)]


def _percentile(ordered: list[float], percent: float) -> float:
    place = (len(ordered) - 1) * percent / 100
    below = int(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (place - below)


def _notes(contenders: Sequence[dict], axis: Axis):
    for contender in contenders:
        beyond = [s for s in contender["samples_ms"] if s > axis.high]
        if beyond:
            yield (
                f"{contender['name']}: {text.count(len(beyond), 'sample')} beyond the axis, up to"
                f" {text.milliseconds(max(beyond))} ms."
            )
    most = max(len(c["samples_ms"]) for c in contenders)
    if most > DRAWN_SAMPLES:
        yield (
            f"Of more than {DRAWN_SAMPLES} samples (there are up to {most}), {DRAWN_SAMPLES} are drawn,"
            " picked evenly; the figures are of all."
        )
