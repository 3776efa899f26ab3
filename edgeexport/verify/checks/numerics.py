"""Does every method say what it is to say, at every recorded size: what eager said, or of a
quantized program, what PyTorch says of its graph?
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace

from edgeexport.artifact.cases import GoldenAnswers, case_calls
from edgeexport.artifact.manifest import Case, MethodEntry
from edgeexport.errors import RuntimeFault
from edgeexport.method import Finding, Tolerance
from edgeexport.runtime.program import Program, ProgramMethod
from edgeexport.samplers import digest
from edgeexport.verify.compare import METRICS, Comparison, finite


def check(program: Program) -> Iterator[Finding]:
    """One finding a method and case; inputs are drawn again and must have the digest recorded at
    the build.
    """
    golden, expected = program.artifact.golden(), program.artifact.expected()
    for name in program.methods:
        entry = program.artifact.methods[name]
        costs = {} if entry.quality is None else _costs(entry, golden, expected)
        for case in program.cases(name):
            yield _check_case(program, program[name], entry, case, golden, expected, costs)


def _check_case(
    program: Program,
    method: ProgramMethod,
    entry: MethodEntry,
    case: Case,
    golden: Mapping,
    expected: Mapping,
    costs: Mapping[str, Comparison],
) -> Finding:
    tolerance = entry.tolerance
    limit = _limit(tolerance)
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
    allowed = dict.fromkeys(keys, tolerance)
    if entry.quality is not None:
        for output, key in keys.items():
            count = expected[key].numel()
            allowed[output] = _as_far_as_its_graph(tolerance, costs[output], count)
        limit = _limit(*allowed.values())
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
        details["allowed"] = _widest(*allowed.values())
    return Finding(
        "numerics",
        method.name,
        passed,
        measured,
        limit,
        "" if passed else f"The file does not say what {said} said.",
        details,
    )


def _costs(entry: MethodEntry, golden: Mapping, expected: Mapping) -> dict[str, Comparison]:
    """How far each output of a quantized program's graph, run by PyTorch, is from eager: SQNR over
    all cases together, errors in the worst.
    """
    import torch

    costs = {}
    for output in entry.outputs:
        keys = [f"{entry.name}/{case.id}/{output.name}" for case in entry.cases]
        each = [Comparison.of(expected[key], golden[key]) for key in keys]
        got, want = (torch.cat([t[key].flatten() for key in keys]) for t in (expected, golden))
        costs[output.name] = replace(
            Comparison.of(got, want), max_abs_relative=max(c.max_abs_relative for c in each)
        )
    return costs


def _as_far_as_its_graph(tolerance: Tolerance, cost: Comparison, count: int) -> Tolerance:
    """What is allowed of an output of `count` values of a quantized program, whose graph costs so
    much.

    Wherever a value lies between two whole numbers, runtime and PyTorch may round it apart, and
    each layer multiplies such places: in a deep network the two end like two roundings of the same
    model, 3 dB farther from each other than each is from eager. As much again is allowed; and of
    few values, what chance may make of them. A wrong kernel is farther.
    """
    margin_db = 6.0 + 10.0 * math.log10(_chance(count))
    return replace(
        tolerance,
        max_abs_relative=max(tolerance.max_abs_relative, cost.max_abs_relative * 10 ** (margin_db / 20)),
        min_sqnr_db=min(tolerance.min_sqnr_db, cost.sqnr_db - margin_db),
    )


def _chance(count: int) -> float:
    """How many times its mean the power of noise may be, once in a thousand, over `count` values
    (chi-squared, by Wilson and Hilferty 1931).
    """
    share = 2.0 / (9.0 * count)
    return (1.0 - share + 3.09 * math.sqrt(share)) ** 3


def _widest(*tolerances: Tolerance) -> dict[str, float]:
    """What the output that is allowed most is allowed."""
    return {
        "max_abs_relative": max(t.max_abs_relative for t in tolerances),
        "min_sqnr_db": min(t.min_sqnr_db for t in tolerances),
    }


def _limit(*tolerances: Tolerance) -> str:
    widest = _widest(*tolerances)
    return f"max abs <= {widest['max_abs_relative']:.0e} x range, SQNR >= {widest['min_sqnr_db']:.0f} dB"
