"""Does every method say what eager said, at every recorded size?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from edgeexport.errors import RuntimeFault
from edgeexport.method import Finding, draw
from edgeexport.runtime.program import Program, ProgramMethod
from edgeexport.samplers import Normal, Photo, Uniform, digest
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


def _check_case(program: Program, method: ProgramMethod, entry: dict, case: dict, golden: Mapping) -> Finding:
    tolerance = entry["tolerance"]
    limit = (
        f"max abs <= {tolerance['max_abs_relative']:.0e} x range, SQNR >= {tolerance['min_sqnr_db']:.0f} dB"
    )
    label = case_label(case)
    before, inputs = case_calls(case, program, method, GoldenAnswers(golden))
    if digest((*before, *inputs)) != case["inputs_sha256"]:
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
        if before:
            program[case["setup"]["method"]](*before)
        answers = method(*inputs)
    except RuntimeFault as error:
        return Finding("numerics", method.name, False, f"{label}: it does not run", limit, str(error))
    compared = {
        output: Comparison.of(answer, golden[f"{method.name}/{case['id']}/{output}"])
        for output, answer in zip(method.outputs, answers)
    }
    worst = max(
        compared.values(), key=lambda c: (c.max_abs_relative != c.max_abs_relative, c.max_abs_relative)
    )
    least = min(c.sqnr_db for c in compared.values())
    passed = all(c.within(tolerance["max_abs_relative"], tolerance["min_sqnr_db"]) for c in compared.values())
    measured = (
        f"{label}: max abs {worst.max_abs:.1e} = {worst.max_abs_relative:.1e} x range, SQNR {least:.0f} dB"
    )
    metrics = {}
    for spec, answer in zip(entry["outputs"], answers):
        if spec["metric"]:
            value = METRICS[spec["metric"]](answer, golden[f"{method.name}/{case['id']}/{spec['name']}"])
            metrics[spec["metric"]] = value
            passed &= value >= spec["metric_limit"]
            measured += f", {spec['metric']} {value:.5f}"
            limit += f", {spec['metric']} >= {spec['metric_limit']}"
    details = {
        "case": case["id"],
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


def case_calls(case: dict, methods, method, outputs: Mapping) -> tuple[tuple, tuple]:
    """The tensors of a case: those of the call that sets up the state (none without one), and those
    of the call itself.

    `methods` gives a method by its name, `method` is the one of the case: of the catalogue or of a
    program.
    """
    setup = case["setup"]
    before = case_inputs(methods[setup["method"]].inputs, setup, outputs) if setup else ()
    return before, case_inputs(method.inputs, case, outputs)


def case_inputs(inputs, case: dict, outputs: Mapping) -> tuple:
    """The tensors of one call.

    `random` cases draw noise where photographs would be, within the range that the input declares.
    """
    specs = inputs
    if case["kind"] == "random":
        from dataclasses import replace

        noise = {i.name: Uniform(*i.range) if i.range else Normal() for i in inputs}
        specs = [replace(i, sample=noise[i.name]) if isinstance(i.sample, Photo) else i for i in inputs]
    return tuple(draw(spec, case["sizes"], case["seed"] + index, outputs) for index, spec in enumerate(specs))


def case_label(case: dict) -> str:
    sizes = ", ".join(f"{k}={v}" for k, v in case["sizes"].items())
    return " ".join(part for part in (sizes, case["kind"]) if part)


class GoldenAnswers(Mapping):
    """Golden answers of a method's first or last case, by `method/first/output`: what other
    methods' inputs come from.
    """

    def __init__(self, golden: Mapping):
        self._golden = golden

    def __getitem__(self, key: str):
        method, which, output = key.split("/")
        cases = (int(k.split("/")[1]) for k in self._golden if k.startswith(f"{method}/"))
        return self._golden[f"{method}/{0 if which == 'first' else max(cases)}/{output}"]

    def __iter__(self):
        return iter(self._golden)

    def __len__(self) -> int:
        return len(self._golden)
