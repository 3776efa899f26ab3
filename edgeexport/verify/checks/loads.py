"""Does the runtime load the file and every method in it?"""

from __future__ import annotations

import time
from collections.abc import Iterator

from edgeexport.errors import RuntimeFault
from edgeexport.method import Finding
from edgeexport.runtime.program import Program


def check(program: Program) -> Iterator[Finding]:
    """One finding a method: it loads, and in how long; the first opens the file too."""
    program.prepare()
    for name in program.methods:
        start = time.perf_counter()
        try:
            program[name].load()
        except RuntimeFault as error:
            yield Finding("loads", name, False, "it does not load", "it loads", str(error))
        else:
            yield Finding("loads", name, True, f"{(time.perf_counter() - start) * 1e3:.0f} ms", "it loads")
