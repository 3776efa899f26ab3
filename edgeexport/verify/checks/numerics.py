"""Does every method say what it is to say, at every recorded size: what eager said, or of a
quantized program, what PyTorch says of its graph?
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from edgeexport.artifact.cases import GoldenAnswers, case_calls
from edgeexport.artifact.manifest import Case, MethodEntry
from edgeexport.errors import RuntimeFault
from edgeexport.method import Finding, Tolerance
from edgeexport.runtime.program import Program, ProgramMethod
from edgeexport.samplers import digest
from edgeexport.verify.allowed import Allowed, widest
from edgeexport.verify.compare import METRICS, Comparison, finite


def check(program: Program) -> Iterator[Finding]:
    """One finding a method and case; inputs are drawn again and must have the digest recorded at
    the build.
    """
    golden, expected = program.artifact.golden(), program.artifact.expected()
    for name in program.methods:
        entry = program.artifact.methods[name]
        allowed = Allowed(entry, golden, expected)
        for case in program.cases(name):
            yield _check_case(program, program[name], entry, case, golden, expected, allowed.of(case))


def _check_case(
    program: Program,
    method: ProgramMethod,
    entry: MethodEntry,
    case: Case,
    golden: Mapping,
    expected: Mapping,
    allowed: Mapping[str, Tolerance],
) -> Finding:
    most, least_db = widest(allowed)
    limit = f"max abs <= {most:.0e} x range, SQNR >= {least_db:.0f} dB"
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
    keys = {output: f"{method.name}/{case.id}/{output}" for output in method.outputs}
    compared = {
        output: Comparison.of(answer, expected[keys[output]])
        for output, answer in zip(method.outputs, answers)
    }
    worst = max(
        compared.values(), key=lambda c: (c.max_abs_relative != c.max_abs_relative, c.max_abs_relative)
    )
    least = min(c.sqnr_db for c in compared.values())
    passed = all(
        c.within(allowed[output].max_abs_relative, allowed[output].min_sqnr_db)
        for output, c in compared.items()
    )
    measured = (
        f"{label}: max abs {worst.max_abs:.1e} = {worst.max_abs_relative:.1e} x range, SQNR {least:.0f} dB"
    )
    metrics, said = {}, "eager" if entry.quality is None else "its graph"
    for spec, answer in zip(entry.outputs, answers):
        if spec.metric and spec.metric_limit is not None and entry.quality is None:
            value = METRICS[spec.metric](answer, expected[f"{method.name}/{case.id}/{spec.name}"])
            metrics[spec.metric] = value
            passed &= value >= spec.metric_limit
            measured += f", {spec.metric} {value:.5f}"
            limit += f", {spec.metric} >= {spec.metric_limit}"
    details = {
        "case": case.id,
        "metrics": metrics,
        **{
            o: {"max_abs": c.max_abs, "max_abs_relative": c.max_abs_relative, "sqnr_db": finite(c.sqnr_db)}
            for o, c in compared.items()
        },
    }
    if entry.quality is not None:
        details["allowed"] = {"max_abs_relative": most, "min_sqnr_db": least_db}
    return Finding(
        "numerics",
        method.name,
        passed,
        measured,
        limit,
        "" if passed else f"The file does not say what {said} said.",
        details,
    )
