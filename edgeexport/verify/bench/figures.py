"""What the rounds say: percentiles, ratios to the baseline with their spread, noise; the rounds of
several processes are one sample.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy

SPREAD = (5, 95)
"""The percentiles between which a spread lies: of the ratios of single rounds, and of the
calibration loop.
"""


def rows(answers: Sequence[list[dict[str, Any]]], baseline: str) -> list[dict[str, Any]]:
    """Each process's rows as one: samples in the order of the processes, loading and the first call
    from the first of them.
    """
    return [_row(parts, baseline) for parts in zip(*answers, strict=True)]


def noise(threads: int, calibration_ms: Sequence[float]) -> list[dict[str, Any]]:
    """Percentiles and spread of the calibration loop; none where it was not run."""
    if not calibration_ms:
        return []
    low, middle, high = map(float, numpy.percentile(calibration_ms, (SPREAD[0], 50, SPREAD[1])))
    return [
        {
            "threads": threads,
            "calibration_ms": {"p5": low, "p50": middle, "p95": high},
            "spread": (high - low) / middle,
        }
    ]


def ratio(samples_ms: Sequence[float], base_ms: Sequence[float]) -> dict[str, float]:
    """Of the medians, and the spread of the ratios of single rounds: noise that lasts hits both
    sides of a round, and cancels.
    """
    low, high = numpy.percentile(numpy.divide(samples_ms, base_ms), SPREAD)
    median = float(numpy.median(samples_ms) / numpy.median(base_ms))
    return {"median": median, "low": min(float(low), median), "high": max(float(high), median)}


def _row(parts: Sequence[dict[str, Any]], baseline: str) -> dict[str, Any]:
    contenders = [_together(each) for each in zip(*(part["contenders"] for part in parts), strict=True)]
    base = next((c for c in contenders if c["name"] == baseline and "error" not in c), None)
    return parts[0] | {
        "rounds": sum(part["rounds"] for part in parts),
        "processes": len(parts),
        "baseline": baseline,
        "contenders": [
            contender if "error" in contender else _figures(contender, base) for contender in contenders
        ],
    }


def _together(parts: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """A contender in all processes. One that failed in any has failed."""
    failed = next((part for part in parts if "error" in part), None)
    if failed is not None:
        return failed
    errors = [part["max_abs_relative"] for part in parts]
    return parts[0] | {
        "samples_ms": [sample for part in parts for sample in part["samples_ms"]],
        "max_abs_relative": None if None in errors else max(errors),
    }


def _figures(contender: dict[str, Any], base: dict[str, Any] | None) -> dict[str, Any]:
    samples = contender["samples_ms"]
    percentiles = dict(
        zip(("p50_ms", "p90_ms", "p95_ms", "p99_ms"), map(float, numpy.percentile(samples, (50, 90, 95, 99))))
    )
    return (
        contender
        | percentiles
        | {
            "min_ms": min(samples),
            "mean_ms": float(numpy.mean(samples)),
            "ratio": None if base is None or base is contender else ratio(samples, base["samples_ms"]),
        }
    )
