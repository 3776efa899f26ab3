"""Error statistics between what a program answered and what eager answered."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

FLOOR = 1e-5
"""Absolute error below which two float32 answers count as equal: an output of one element has no
range to be relative to.
"""


@dataclass(frozen=True)
class Comparison:
    """How far `got` is from `want`."""

    max_abs: float
    max_abs_relative: float
    sqnr_db: float

    @classmethod
    def of(cls, got: torch.Tensor, want: torch.Tensor) -> Comparison:
        """Statistics over all elements, in float64.

        Shapes must be equal; NaN anywhere gives NaN, which passes nothing.
        """
        if got.shape != want.shape:
            raise ValueError(f"shapes differ: {tuple(got.shape)} and {tuple(want.shape)}")
        got, want = got.double(), want.double()
        noise = got - want
        max_abs = float(noise.abs().max())
        span = max(float(want.max() - want.min()), float(want.abs().max()))
        relative = max_abs / span if span else (0.0 if max_abs == 0.0 else math.inf)
        power = float(noise.square().sum())
        sqnr = (
            math.inf if power == 0.0 else 10.0 * math.log10(max(float(want.square().sum()), 1e-300) / power)
        )
        return cls(max_abs, relative, math.nan if math.isnan(max_abs) else sqnr)

    def within(self, max_abs_relative: float, min_sqnr_db: float) -> bool:
        """Whether the error is inside both limits, or below FLOOR."""
        if self.max_abs <= FLOOR:
            return True
        return self.max_abs_relative <= max_abs_relative and self.sqnr_db >= min_sqnr_db


def finite(value: float) -> float | str:
    """A figure for JSON, which has no infinity."""
    return value if abs(value) != math.inf else "inf"


def mask_iou(got: torch.Tensor, want: torch.Tensor) -> float:
    """Intersection over union of two masks of logits, cut at 0; 1.0 when both are empty."""
    a, b = got > 0, want > 0
    union = int((a | b).sum())
    return int((a & b).sum()) / union if union else 1.0


def top5_overlap(got: torch.Tensor, want: torch.Tensor) -> float:
    """Share of the five best classes of each row that are the same, as sets; 1.0 is all."""
    pairs = zip(got.topk(5).indices.tolist(), want.topk(5).indices.tolist())
    shares = [len(set(a) & set(b)) / 5 for a, b in pairs]
    return min(shares)


METRICS = {"mask_iou": mask_iou, "top5_overlap": top5_overlap}
