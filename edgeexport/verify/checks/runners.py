"""Does the native runner answer what the Python runtime answers?"""

from __future__ import annotations

from collections.abc import Iterator

from edgeexport.artifact.cases import GoldenAnswers, answer
from edgeexport.method import Finding
from edgeexport.runtime.program import Program
from edgeexport.verify.compare import Comparison

MAX_ABS_RELATIVE = {False: 1e-6, True: 1e-4}
"""By whether a board runs it. On this machine both are the same libraries on the same CPU (the
number of threads may change the order of a sum); another CPU has other kernels, and may differ as
much as a model's tolerance allows against eager.
"""


def check(program: Program) -> Iterator[Finding]:
    """One finding a method, for its least and its greatest case; nothing when the program does not
    run in the native runner.
    """
    if program.runtime.module != "native":
        return
    other = Program(program.artifact)
    golden = GoldenAnswers(program.artifact.golden())
    limit = MAX_ABS_RELATIVE[bool(program.runtime.board)]
    for name in program.methods:
        worst, label = 0.0, ""
        cases = program.cases(name)
        for case in (cases[0], cases[-1])[: len(cases)]:
            ours, theirs = (answer(each, name, case, golden) for each in (program, other))
            error = max(
                (Comparison.of(a, b).max_abs_relative for a, b in zip(ours, theirs)),
                key=lambda e: (e != e, e),
            )  # NaN is the worst
            if not error <= worst:
                worst, label = error, f" ({case.label})"
        yield Finding(
            "runners",
            name,
            worst <= limit,
            f"{program.runtime} and Python differ by {worst:.1e} x range{label}",
            f"<= {limit:.0e} x range",
            "" if worst <= limit else "The same file gives another answer without Python.",
            {"max_abs_relative": worst, "runtime": str(program.runtime)},
        )
