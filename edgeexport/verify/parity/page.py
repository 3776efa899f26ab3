"""Parity as one self-contained page: the table, and how far each pair is from what is allowed."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from edgeexport.verify.parity import Line, Parity

DECADES = (-9, 0)
"""The plot's axis: powers of ten of the largest absolute error over the range."""


def render(found: Parity) -> str:
    """The page as HTML."""
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("edgeexport.verify.parity", "."),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("page.html.j2").render(
        parity=found, position=_position, limit=_limit, decades=range(DECADES[0], DECADES[1] + 1)
    )


def _position(relative: float) -> float:
    """Where an error lies on the axis, in percent; what is smaller than it starts at 0."""
    if math.isnan(relative):
        return 100.0
    low, high = DECADES
    exponent = math.log10(max(relative, 10.0**low))
    return round(100.0 * min((exponent - low) / (high - low), 1.0), 2)


def _limit(line: Line) -> float:
    """The allowed error of a line, as a number."""
    found = re.search(r"<= (\S+) x", line.allowed)
    assert found is not None, f"'{line.allowed}' has no limit"
    return float(found[1])
