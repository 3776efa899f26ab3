"""Figures as people read them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence


def size(size_bytes: float | None) -> str:
    """Bytes in the unit that fits, decimal as everywhere in edgeexport: 12.3 MB, 512 bytes."""
    if size_bytes is None:
        return "not recorded"
    for limit, unit in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if size_bytes >= limit:
            return (
                f"{size_bytes / limit:.3g} {unit}"
                if size_bytes < 100 * limit
                else f"{size_bytes / limit:.0f} {unit}"
            )
    return count(round(size_bytes), "byte")


def milliseconds(value_ms: float | None) -> str:
    """Three digits: 0.123, 12.3, 1230."""
    if value_ms is None:
        return ""
    return f"{value_ms:.0f}" if value_ms >= 100 else f"{value_ms:.3g}"


def error(value: float) -> str:
    """An error: 1.2e-06, 0, or that it is not a number."""
    if math.isnan(value):
        return "not a number"
    return f"{value:.1e}" if value else "0"


def decibels(value: float) -> str:
    """A ratio in dB; infinite is exact."""
    if math.isnan(value):
        return "not a number"
    return "exact" if value == math.inf else f"{value:.0f} dB"


def shape(sizes: Sequence[int | str]) -> str:
    return "[" + ", ".join(map(str, sizes)) + "]"


def sizes_label(sizes: Mapping[str, int]) -> str:
    """The sizes of a case: batch = 1, points = 3."""
    return ", ".join(f"{name} = {size}" for name, size in sizes.items())


def count(number: int, noun: str) -> str:
    """1 delegate, 2 delegates."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
