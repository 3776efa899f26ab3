"""Plots as inline SVG: x in percent of the width, y in pixels, so that text keeps its size from a
phone to a desk.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from xml.etree import ElementTree

from markupsafe import Markup


@dataclass(frozen=True)
class Axis:
    """Values to percent of the width; what lies outside is drawn at the edge."""

    low: float
    high: float
    logarithmic: bool = False

    def percent(self, value: float) -> float:
        """Where `value` lies, 0 to 100; what is not a number lies at the right edge."""
        if math.isnan(value):
            return 100.0
        low, high, value = (self._scaled(v) for v in (self.low, self.high, value))
        return round(100.0 * min(max((value - low) / (high - low), 0.0), 1.0), 3)

    def _scaled(self, value: float) -> float:
        return math.log10(max(value, self.low)) if self.logarithmic else value

    def ticks(self, count: int = 5) -> list[float]:
        """Round values on the axis: powers of ten, or about `count` steps of 1, 2 or 5."""
        if self.logarithmic:
            exponents = range(
                math.ceil(math.log10(self.low) - 1e-9), math.floor(math.log10(self.high) + 1e-9) + 1
            )
            return [10.0**e for e in exponents[:: math.ceil(len(exponents) / (count + 1))]]
        raw = (self.high - self.low) / count
        unit = 10.0 ** math.floor(math.log10(raw))
        step = next(unit * m for m in (1, 2, 5, 10) if unit * m >= raw * 0.999)
        first = math.ceil(self.low / step - 1e-9)
        return [n * step for n in range(first, math.floor(self.high / step + 1e-9) + 1)]


class Plot:
    """An SVG that is being drawn. `title` is its text alternative."""

    def __init__(self, height_px: float, title: str):
        self._root = ElementTree.Element(
            "svg",
            {
                "class": "plot",
                "role": "img",
                "width": "100%",
                "height": _text(height_px),
                "aria-label": title,
            },
        )

    def add(self, tag: str, text: str | None = None, title: str | None = None, **attributes) -> None:
        """An element; attributes as in SVG, `_` for `-` and `class_` for `class`.

        `title` is shown under the pointer.
        """
        named = {
            "class" if name == "class_" else name.replace("_", "-"): _text(value)
            for name, value in attributes.items()
        }
        element = ElementTree.SubElement(self._root, tag, named)
        element.text = text
        if title is not None:
            ElementTree.SubElement(element, "title").text = title

    def vertical(
        self, percent: float, top: float, bottom: float, class_: str, title: str | None = None
    ) -> None:
        """A vertical line."""
        self.add("line", title=title, x1=f"{percent}%", x2=f"{percent}%", y1=top, y2=bottom, class_=class_)

    def bar(
        self, start: float, end: float, top: float, height: float, class_: str, title: str | None = None
    ) -> None:
        """A rectangle from `start` to `end` percent."""
        self.add(
            "rect",
            title=title,
            x=f"{start}%",
            width=f"{max(round(end - start, 3), 0)}%",
            y=top,
            height=height,
            class_=class_,
        )

    def label(
        self, text: str, percent: float, y: float, class_: str = "", anchor: str | None = None, dx: float = 0
    ) -> None:
        """Text; at the edges of the plot it is anchored so that it stays inside."""
        anchor = anchor or ("start" if percent < 8 else "end" if percent > 92 else "middle")
        self.add("text", text, x=f"{percent}%", y=y, dx=dx, text_anchor=anchor, class_=class_)

    def grid(self, axis: Axis, top: float, bottom: float, labels: Sequence[str]) -> None:
        """Lines at the axis' ticks, with `labels` under them."""
        for value, text in zip(axis.ticks(), labels, strict=True):
            self.vertical(axis.percent(value), top, bottom, "grid")
            self.label(text, axis.percent(value), bottom + 13, "tick")

    def inside(self, place: Mapping[str, object], *elements: tuple[str, Mapping[str, object]]) -> None:
        """Elements in a coordinate system of their own, whose origin is at `place` (an `x` in
        percent, which paths cannot have).
        """
        home = ElementTree.SubElement(
            self._root, "svg", {name: _text(value) for name, value in place.items()}
        )
        for tag, attributes in elements:
            ElementTree.SubElement(home, tag, {name: _text(value) for name, value in attributes.items()})

    def markup(self) -> Markup:
        """The SVG, safe to put into a page."""
        return Markup(ElementTree.tostring(self._root, encoding="unicode", short_empty_elements=True))


def _text(value) -> str:
    return f"{round(value, 2):g}" if isinstance(value, (int, float)) else str(value)
