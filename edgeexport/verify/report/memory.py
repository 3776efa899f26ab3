"""The planned memory of a method over its instructions, as rectangles."""

from __future__ import annotations

from dataclasses import dataclass

from markupsafe import Markup

from edgeexport import text
from edgeexport.artifact.pte_memory_plan import STATE_ARENA, Lifetime, MemoryPlan
from edgeexport.verify.report.svg import Axis, Plot

HEIGHT_PX = 220
LEAST_PX = 0.7
"""Tensors that would be lower than this are not drawn."""

DRAWN = 400
"""At most so many tensors are drawn, those with the most bytes over time."""


@dataclass(frozen=True)
class PlanView:
    """A memory plan, drawn; `top_bytes` is the upper end of the plot."""

    method: str
    top_bytes: int
    peak_bytes: int
    peak_at: int
    peak_call: str
    instructions: int
    tensors: int
    state_bytes: int
    holds_state: bool
    left_out: str
    plot: Markup


def plan_view(plan: MemoryPlan) -> PlanView:
    """Draws a plan: instructions from left to right, arenas on top of one another, the fullest
    instruction marked.
    """
    count = max(len(plan.instructions), 1)
    live = plan.live_bytes() or [0]
    peak_at = live.index(max(live))
    drawn, rest = _worth_drawing(plan)
    view = _Canvas(plan, count)
    view.arenas()
    for tensor in drawn:
        view.tensor(tensor)
    view.marks(peak_at, live[peak_at])
    left_out = (
        f"{text.count(len(rest), 'tensor')}, the small and short-lived ones, none larger than"
        f" {text.size(max(t.size_bytes for t in rest))}"
        if rest
        else ""
    )
    state = sum(size for arena, size in plan.arena_bytes.items() if arena >= STATE_ARENA)
    return PlanView(
        plan.method,
        plan.planned_bytes,
        live[peak_at],
        peak_at,
        plan.instructions[peak_at] if plan.instructions else "",
        len(plan.instructions),
        len(plan.tensors),
        state,
        any(t.arena >= STATE_ARENA for t in plan.tensors),
        left_out,
        view.plot.markup(),
    )


def _worth_drawing(plan: MemoryPlan) -> tuple[list[Lifetime], list[Lifetime]]:
    """The tensors that can be seen, and the rest."""
    least_bytes = plan.planned_bytes * LEAST_PX / HEIGHT_PX
    ordered = sorted(
        plan.tensors, key=lambda t: (t.size_bytes < least_bytes, -t.size_bytes * (t.last - t.first + 1))
    )
    seen = min(sum(t.size_bytes >= least_bytes for t in ordered), DRAWN)
    return ordered[:seen], ordered[seen:]


class _Canvas:
    """The plot of one plan: bytes upwards from the first arena's start."""

    def __init__(self, plan: MemoryPlan, count: int):
        self.plan, self.count = plan, count
        self.total = max(plan.planned_bytes, 1)
        self.base = {
            arena: sum(size for other, size in plan.arena_bytes.items() if other < arena)
            for arena in plan.arena_bytes
        }
        described = (
            f"Planned memory of {plan.method}: {text.size(plan.planned_bytes)} for"
            f" {text.count(len(plan.tensors), 'tensor')} over {text.count(count, 'instruction')}"
        )
        self.plot = Plot(HEIGHT_PX + 36, described)

    def y(self, offset: float) -> float:
        return 18 + HEIGHT_PX * (1 - offset / self.total)

    def arenas(self) -> None:
        """Scale of bytes, and what is planned: the state's part in another shade."""
        for arena, size in self.plan.arena_bytes.items():
            top = self.y(self.base[arena] + size)
            self.plot.bar(
                0,
                100,
                top,
                self.y(self.base[arena]) - top,
                "arena state" if arena >= STATE_ARENA else "arena",
            )
        axis = Axis(0, self.total)
        for tick in axis.ticks(4):
            self.plot.add("line", x1="0%", x2="100%", y1=self.y(tick), y2=self.y(tick), class_="grid")
            self.plot.add(
                "text",
                text.size(tick) if tick else "0",
                x=-6,
                y=self.y(tick) + 4,
                text_anchor="end",
                class_="tick",
            )
        steps = Axis(0, self.count)
        for tick in steps.ticks():
            if tick == int(tick):
                self.plot.label(
                    f"{tick:g}" if tick else "instruction 0", steps.percent(tick), 18 + HEIGHT_PX + 15, "tick"
                )

    def tensor(self, tensor: Lifetime) -> None:
        top = self.y(self.base[tensor.arena] + tensor.offset + tensor.size_bytes)
        height = max(HEIGHT_PX * tensor.size_bytes / self.total, LEAST_PX)
        start, end = (100 * place / self.count for place in (tensor.first, tensor.last + 1))
        when = (
            f"instruction {tensor.first}"
            if tensor.first == tensor.last
            else f"instructions {tensor.first} to {tensor.last}"
        )
        facts = f"{tensor.dtype} {text.shape(tensor.shape)}, {text.size(tensor.size_bytes)}, {when}"
        self.plot.bar(
            round(start, 3),
            round(end, 3),
            top,
            height,
            "tensor state" if tensor.arena >= STATE_ARENA else "tensor",
            facts,
        )

    def marks(self, peak_at: int, peak_bytes: int) -> None:
        """The planned bytes, and the instruction at which most of them are in use."""
        place = round(100 * (peak_at + 0.5) / self.count, 3)
        self.plot.add("line", x1="0%", x2="100%", y1=18, y2=18, class_="limit")
        self.plot.label(f"planned {text.size(self.plan.planned_bytes)}", 0, 12, "name")
        self.plot.vertical(
            place,
            18,
            18 + HEIGHT_PX,
            "peak",
            f"most in use: {text.size(peak_bytes)} at instruction {peak_at}",
        )
        self.plot.label(f"peak in use {text.size(peak_bytes)}", 100, 12, "name")
