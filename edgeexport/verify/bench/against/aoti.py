"""Plain AOTInductor, as its tutorial uses it: the captured program, no passes, this machine's
CPU.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from edgeexport.verify.bench.case import Case


def require() -> None:
    """It needs nothing more: torch says which compiler is missing."""


def prepare(case: Case) -> Callable[[], object]:
    """The package, compiled once for all thread counts.

    Its state is inside, as the tutorial's is.
    """
    from torch._inductor import aoti_compile_and_package, aoti_load_package

    path = case.folder / f"aoti-{case.method.name}.pt2"
    if not path.exists():
        aoti_compile_and_package(case.program(), package_path=str(path))
    package = aoti_load_package(str(path))

    def run():
        with torch.no_grad():
            return package(*case.inputs)

    return run
