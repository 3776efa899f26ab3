"""Where the time of a method goes: its costliest operators, those outside of delegates told
apart.
"""

from __future__ import annotations

from dataclasses import dataclass

from markupsafe import Markup

from edgeexport import text
from edgeexport.verify.report.svg import Axis, Plot

SHOWN = 12
"""Operators that are drawn; all are in the table's sum."""

ROW_PX = 34

WHERE = {True: "in a delegate", False: "outside of delegates", None: "between the operators"}


@dataclass(frozen=True)
class MethodProfile:
    """One profiled method: the costliest operators drawn, and all that no delegate took with their
    reasons.
    """

    title: str
    total_ms: float
    accounted_ms: float
    operators: tuple[dict, ...]
    undelegated: tuple[dict, ...]
    left_out: str
    plot: Markup


def method_profiles(profile: dict) -> list[MethodProfile]:
    """The methods of a profile file, drawn."""
    return [_method_profile(method) for method in profile["methods"]]


def _method_profile(method: dict) -> MethodProfile:
    title = ", ".join(filter(None, (method["method"], text.sizes_label(method["sizes"]))))
    ordered = sorted(method["operators"], key=lambda operator: -operator["time_ms"])
    shown, rest = ordered[:SHOWN], ordered[SHOWN:]
    left_out = (
        f"{text.count(len(rest), 'more operator')} with {text.milliseconds(sum(o['time_ms'] for o in rest))}"
        " ms together"
        if rest
        else ""
    )
    undelegated = tuple(o for o in ordered if o["delegated"] is False)
    return MethodProfile(
        title,
        method["total_ms"],
        method["accounted_ms"],
        tuple(shown),
        undelegated,
        left_out,
        _plot(title, shown),
    )


def _plot(title: str, operators: list[dict]) -> Markup:
    axis = Axis(0.0, max((o["time_ms"] for o in operators), default=0.0) * 1.02 or 1.0)
    height = ROW_PX * len(operators)
    plot = Plot(
        height + 20,
        f"Costliest operators of {title}: "
        + "; ".join(f"{o['operator']} {text.milliseconds(o['time_ms'])} ms" for o in operators[:5]),
    )
    plot.grid(
        axis,
        0,
        height + 2,
        [f"{tick:g} ms" if not index else f"{tick:g}" for index, tick in enumerate(axis.ticks())],
    )
    for index, operator in enumerate(operators):
        where = WHERE[operator["delegated"]]
        facts = (
            f"{text.milliseconds(operator['time_ms'])} ms, {100 * operator['share']:.1f} %,"
            f" {text.count(operator['calls'], 'call')}, {where}"
        )
        plot.label(
            f"{operator['operator']}  {text.milliseconds(operator['time_ms'])} ms",
            0,
            ROW_PX * index + 13,
            "name",
        )
        plot.bar(
            0,
            axis.percent(operator["time_ms"]),
            ROW_PX * index + 18,
            11,
            "bar ok" if operator["delegated"] else "bar outside",
            facts,
        )
    return plot.markup()
