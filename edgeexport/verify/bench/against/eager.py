"""The original model in PyTorch, as its users run it."""

from __future__ import annotations

from collections.abc import Callable

import torch

from edgeexport.verify.bench.case import Case


def require() -> None:
    """It needs nothing more."""


def prepare(case: Case) -> Callable[[], object]:
    """The untouched original, without gradients; for a method with state its own module, as the
    original keeps its state elsewhere.
    """
    call = case.method.module if case.state else case.method.reference or case.method.module

    def run():
        with torch.no_grad():
            return call(*case.inputs)

    return run
