"""Does the native runner answer what the Python runtime answers?"""

from __future__ import annotations

from collections.abc import Iterator

from edgeexport.checks.numerics import GoldenAnswers, case_calls, case_label
from edgeexport.compare import Comparison
from edgeexport.method import Finding
from edgeexport.runtime.program import Program

MAX_ABS_RELATIVE = 1e-6
"""Both are the same libraries on the same CPU; how many threads there are may change the order of a sum."""


def check(program: Program) -> Iterator[Finding]:
    """One finding a method, for its least and its greatest case; nothing when the program does not run in the native runner."""
    if program.runtime != "native":
        return
    other = Program(program.artifact)
    golden = GoldenAnswers(program.artifact.golden())
    for name, entry in program.artifact.methods.items():
        worst, label = 0.0, ""
        for case in (entry["cases"][0], entry["cases"][-1]):
            ours, theirs = (_answer(each, name, case, golden) for each in (program, other))
            error = max(Comparison.of(a, b).max_abs_relative for a, b in zip(ours, theirs))
            if not error <= worst:
                worst, label = error, f" ({case_label(case)})"
        yield Finding(
            "runners", name, worst <= MAX_ABS_RELATIVE, f"native and Python differ by {worst:.1e} x range{label}", f"<= {MAX_ABS_RELATIVE:.0e} x range",
            "" if worst <= MAX_ABS_RELATIVE else "The same file gives another answer without Python.", {"max_abs_relative": worst},
        )  # fmt: skip


def _answer(program: Program, name: str, case: dict, golden: GoldenAnswers) -> tuple:
    before, inputs = case_calls(case, program, program[name], golden)
    if before:
        program[case["setup"]["method"]](*before)
    return program[name](*inputs)
