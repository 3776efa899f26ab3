"""Does every method say what eager said, at every recorded size?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from edgeexport.artifact.cases import GoldenAnswers, case_calls
from edgeexport.artifact.manifest import Case, MethodEntry
from edgeexport.errors import RuntimeFault
from edgeexport.method import Finding
from edgeexport.runtime.program import Program, ProgramMethod
from edgeexport.samplers import digest
from edgeexport.verify.compare import METRICS, Comparison


def check(program: Program) -> Iterator[Finding]:
    """One finding a method and case; inputs are drawn again and must have the digest recorded at
    the build.
    """
    golden = program.artifact.golden()
    for name in program.methods:
        entry = program.artifact.methods[name]
        for case in program.cases(name):
            yield _check_case(program, program[name], entry, case, golden)


def _check_case(
    program: Program, method: ProgramMethod, entry: MethodEntry, case: Case, golden: Mapping
) -> Finding:
    tolerance = entry.tolerance
    limit = f"max abs <= {tolerance.max_abs_relative:.0e} x range, SQNR >= {tolerance.min_sqnr_db:.0f} dB"
    label = case.label
    before, inputs = case_calls(case, program, method, GoldenAnswers(golden))
    if digest((*before, *inputs)) != case.inputs_sha256:
        return Finding(
            "numerics",
            method.name,
            False,
            f"{label}: other inputs were drawn than at the build",
            limit,
            "The input generator differs between the two versions of edgeexport: build again, or check with"
            " the version in the manifest.",
        )
    try:
        if case.setup:
            program[case.setup.method](*before)
        answers = method(*inputs)
    except RuntimeFault as error:
        return Finding("numerics", method.name, False, f"{label}: it does not run", limit, str(error))
    compared = {
        output: Comparison.of(answer, golden[f"{method.name}/{case.id}/{output}"])
        for output, answer in zip(method.outputs, answers)
    }
    worst = max(
        compared.values(), key=lambda c: (c.max_abs_relative != c.max_abs_relative, c.max_abs_relative)
    )
    least = min(c.sqnr_db for c in compared.values())
    passed = all(c.within(tolerance.max_abs_relative, tolerance.min_sqnr_db) for c in compared.values())
    measured = (
        f"{label}: max abs {worst.max_abs:.1e} = {worst.max_abs_relative:.1e} x range, SQNR {least:.0f} dB"
    )
    metrics = {}
    for spec, answer in zip(entry.outputs, answers):
        if spec.metric and spec.metric_limit is not None:
            value = METRICS[spec.metric](answer, golden[f"{method.name}/{case.id}/{spec.name}"])
            metrics[spec.metric] = value
            passed &= value >= spec.metric_limit
            measured += f", {spec.metric} {value:.5f}"
            limit += f", {spec.metric} >= {spec.metric_limit}"
    details = {
        "case": case.id,
        "metrics": metrics,
        **{
            o: {"max_abs": c.max_abs, "max_abs_relative": c.max_abs_relative, "sqnr_db": _finite(c.sqnr_db)}
            for o, c in compared.items()
        },
    }
    return Finding(
        "numerics",
        method.name,
        passed,
        measured,
        limit,
        "" if passed else "The file does not say what eager said.",
        details,
    )


def _finite(value: float) -> float | str:
    """JSON has no infinity."""
    return value if abs(value) != float("inf") else "inf"
