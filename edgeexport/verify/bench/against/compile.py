"""torch.compile with its defaults: compiled on this machine, for this CPU and just this size."""

from __future__ import annotations

from collections.abc import Callable

import torch

from edgeexport.verify.bench.case import Case


def require() -> None:
    """It needs nothing more than AOTInductor does: torch says what."""


def prepare(case: Case) -> Callable[[], object]:
    """The method's module, compiled at the first call."""
    torch.compiler.reset()
    compiled = torch.compile(case.method.module)

    def run():
        with torch.no_grad():
            return compiled(*case.inputs)

    return run
