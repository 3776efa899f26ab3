"""Does the native runner answer what the Python runtime answers?"""

from __future__ import annotations

import math
from collections.abc import Iterator

from edgeexport.artifact.cases import GoldenAnswers, answer
from edgeexport.method import Finding
from edgeexport.runtime.program import Program
from edgeexport.verify.allowed import Allowed, widest
from edgeexport.verify.compare import Comparison

MAX_ABS_RELATIVE = {False: 1e-6, True: 1e-4}
"""By whether a board runs it. On this machine both are the same libraries on the same CPU (the
number of threads may change the order of a sum); another CPU has other kernels, and may differ as
much as a model's tolerance allows against eager; a quantized program as it may from its graph, by
SQNR too.
"""


def check(program: Program) -> Iterator[Finding]:
    """One finding a method, for its least and its greatest case; nothing when the program does not
    run in the native runner.
    """
    if program.runtime.module != "native":
        return
    other = Program(program.artifact)
    golden, expected = program.artifact.golden(), program.artifact.expected()
    for name in program.methods:
        entry, cases = program.artifact.methods[name], program.cases(name)
        allowed = Allowed(entry, golden, expected)
        error, sqnr_db, label, passed = 0.0, math.inf, "", True
        limit, least_db = MAX_ABS_RELATIVE[bool(program.runtime.board)], -math.inf
        for case in (cases[0], cases[-1])[: len(cases)]:
            if program.runtime.board and entry.quality is not None:
                limit, least_db = widest(allowed.of(case))
            ours, theirs = (answer(each, name, case, GoldenAnswers(golden)) for each in (program, other))
            for found in map(Comparison.of, ours, theirs):
                passed &= found.max_abs_relative <= limit and found.sqnr_db >= least_db
                sqnr_db = min(sqnr_db, found.sqnr_db)
                if not found.max_abs_relative <= error:  # NaN is the worst
                    error, label = found.max_abs_relative, f" ({case.label})"
        quantized = least_db > -math.inf
        yield Finding(
            "runners",
            name,
            passed,
            f"{program.runtime} and Python differ by {error:.1e} x range{label}"
            + f", SQNR {sqnr_db:.0f} dB" * quantized,
            f"<= {limit:.0e} x range" + f", SQNR >= {least_db:.0f} dB" * quantized,
            "" if passed else "The same file gives another answer without Python.",
            {"max_abs_relative": error, "runtime": str(program.runtime)},
        )
