"""Do phone and server say the same?

Artifacts of one model over shared inputs, pair by pair, from their files alone.

Every side answers in a process of its own (a bad program can crash it) to the first artifact's
cases, at every bound of the dynamic dimensions, and runs its whole pipeline on the same photo,
sound or film. The sides are the artifacts' programs and, where one keeps them, the
ExportedPrograms. Then every pair of answers is compared: each with eager's, which the artifacts
hold, and with each other.
"""

from __future__ import annotations

import itertools
import json
import math
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from edgeexport.artifact.folder import PROGRAMS, Artifact, open_artifacts, same_model
from edgeexport.artifact.manifest import Case, MethodEntry
from edgeexport.errors import EdgeExportError, UsageError
from edgeexport.runtime.child_process import run_child
from edgeexport.runtime.program import runtime_of
from edgeexport.verify.compare import METRICS, Comparison
from edgeexport.verify.parity.pipelines import Difference, compare_results, shown

PAIR_FACTOR = 2.0
"""Two programs may each be off eager by the tolerance, in opposite directions."""

EAGER, EXPORTED = "eager", "ExportedProgram"

ANSWERS = "answers.safetensors"
"""What a side's process writes beside its result."""

FILES = ("parity.json", "parity.html")
"""What `write` writes."""


@dataclass(frozen=True)
class Line:
    """One method and pair: the worst of its cases.

    `max_abs_relative` is over the range of the first's answer; metrics by name.
    """

    method: str
    pair: str
    cases: int
    worst_case: str
    max_abs: float
    max_abs_relative: float
    sqnr_db: float
    metrics: Mapping[str, float]
    allowed: str
    passed: bool
    message: str = ""


@dataclass(frozen=True)
class Parity:
    """What was compared: the sides with their artifacts, a line for each method and pair, the
    pipelines' differences, and where sides part.
    """

    model: str
    sides: Mapping[str, str]
    lines: tuple[Line, ...]
    pipeline: Mapping[str, Any]
    differences: tuple[Difference, ...]
    places: tuple[str, ...] = ()

    @property
    def passed(self) -> bool:
        return all(line.passed for line in self.lines) and not self.differences

    def to_json(self) -> dict:
        """As data, for a file and the page."""
        return {"passed": self.passed, **asdict(self)}


@dataclass(frozen=True)
class _Side:
    """One artifact's answers: tensors by `method/case/output`, the pipeline's result, or why there
    are none.
    """

    answers: Mapping[str, Any]
    result: Mapping[str, Any] | None
    failure: str


def parity(paths: Sequence[str | Path], options: Mapping[str, Any] | None = None) -> Parity:
    """Compare the artifacts at `paths`; `options` are given to the pipeline in place of the model's
    own samples.

    Raises ArtifactError for what is no artifact, UsageError for artifacts that are not of one model
    and the same weights.
    """
    artifacts = _opened(paths)
    first = next(iter(artifacts.values()))
    with tempfile.TemporaryDirectory() as folder:
        sides = {}
        for number, (name, artifact, engine) in enumerate(_sides(artifacts)):
            sides[name] = _answers(artifact, engine, first, options or {}, Path(folder) / str(number))
        lines = tuple(_lines(first, artifacts, {EAGER: _Side(first.golden(), None, ""), **sides}))
        failures = [
            Difference(name, "its process", "", side.failure) for name, side in sides.items() if side.failure
        ]
        differences = (
            *failures,
            *compare_results({name: side.result for name, side in sides.items() if side.result}),
        )
    results = {name: shown(side.result) for name, side in sides.items() if side.result}
    places = tuple(_places(lines, artifacts, sides))
    return Parity(
        first.manifest.model.name,
        {n: a.name for n, a in artifacts.items()},
        lines,
        results,
        differences,
        places,
    )


def _places(
    lines: Sequence[Line], artifacts: Mapping[str, Artifact], sides: Mapping[str, _Side]
) -> Iterator[str]:
    """Where the programs that do not say what eager says part from the ExportedPrograms, if an
    artifact keeps those.
    """
    from edgeexport.verify.parity.locate import locate

    kept = next((a for a in artifacts.values() if PROGRAMS in a.manifest.files), None)
    wrong = {line.method for line in lines if not line.passed and line.pair == f"{EAGER} ~ {EXPORTED}"}
    yield from (
        f"{method}: the ExportedProgram itself does not say what eager said; it was so before any target"
        for method in sorted(wrong)
    )
    failed = {
        name: [
            line.method
            for line in lines
            if not line.passed and line.pair == f"{EAGER} ~ {name}" and line.method not in wrong
        ]
        for name in artifacts
    }
    for name, methods in failed.items():
        if not methods or sides[name].failure:
            continue
        if kept is None:
            yield (
                f"{name}: where it differs can be found with a server artifact of the same build beside it,"
                " which keeps the ExportedPrograms"
            )
            continue
        try:
            found = [str(place) for place in locate(artifacts[name], kept, methods[0])]
        except EdgeExportError as error:
            found = [f"it could not be found ({error})"]
        yield from (
            f"{name}: {place}"
            for place in dict.fromkeys(
                found or ["weights, passes and the values of all modules are right for its first case"]
            )
        )


def _opened(paths: Sequence[str | Path]) -> dict[str, Artifact]:
    """The artifacts by the name of their side: target and precision, as far as that tells them
    apart.
    """
    if not paths:
        raise UsageError("Give at least one artifact.")
    opened = [artifact for path in paths for artifact in open_artifacts(path)]
    names = [a.side for a in opened]
    if len(set(names)) < len(names):
        names = [a.name for a in opened]
    if len(set(names)) < len(names):
        raise UsageError(f"An artifact is given twice: {', '.join(names)}.")
    same_model(opened)
    return dict(zip(names, opened))


def _sides(artifacts: Mapping[str, Artifact]) -> Iterator[tuple[str, Artifact, str]]:
    """(name, artifact, engine) of each side: the ExportedPrograms of the first artifact that keeps
    them, then each artifact's own program.
    """
    kept = next((a for a in artifacts.values() if PROGRAMS in a.manifest.files), None)
    if kept is not None:
        yield EXPORTED, kept, "exported"
    for name, artifact in artifacts.items():
        yield name, artifact, str(runtime_of(artifact, None))


def _answers(artifact: Artifact, engine: str, first: Artifact, options: Mapping, folder: Path) -> _Side:
    """What a process of its own answered."""
    from safetensors.torch import load_file

    folder.mkdir()
    request = {
        "path": str(artifact.path),
        "engine": engine,
        "cases_of": str(first.path),
        "folder": str(folder),
        "options": dict(options),
    }
    outcome = run_child("edgeexport.verify.parity.process", request, "the answering process")
    answers = folder / ANSWERS
    return _Side(
        load_file(answers) if answers.exists() else {},
        outcome.answer,
        "" if outcome.error is None else str(outcome.error),
    )


def _lines(first: Artifact, artifacts: Mapping[str, Artifact], sides: Mapping[str, _Side]) -> Iterator[Line]:
    for name, entry in first.methods.items():
        for one, other in itertools.combinations(sides, 2):
            cases = _common(name, artifacts, (one, other))
            yield _line(entry, one, other, sides, cases, _allowed(entry, one, other, artifacts))


def _common(method: str, artifacts: Mapping[str, Artifact], pair: tuple[str, str]) -> list[Case]:
    """The first artifact's cases that every side of the pair was built for (one may take a larger
    batch).
    """
    first = next(iter(artifacts.values()))
    built = {
        EXPORTED: next((a for a in artifacts.values() if PROGRAMS in a.manifest.files), first),
        **artifacts,
    }
    dims = [{d.name: d.bounds for d in built[s].methods[method].dims} for s in pair if s != EAGER]
    return [
        case
        for case in first.methods[method].cases
        if all(
            bounds[name][0] <= size <= bounds[name][1] for bounds in dims for name, size in case.sizes.items()
        )
    ]


@dataclass(frozen=True)
class _Allowed:
    """How far two sides may be apart, in words too; `metrics` are the least values of those of the
    task.
    """

    max_abs_relative: float
    min_sqnr_db: float
    metrics: Mapping[str, float]
    text: str


def _allowed(entry: MethodEntry, one: str, other: str, artifacts: Mapping[str, Artifact]) -> _Allowed:
    """By the tolerance of float32; or where a side is quantized, by what quantizing may cost, which
    random weights say nothing of.
    """
    pair = [artifacts[side] for side in (one, other) if side in artifacts]
    costs = [found for a in pair if (found := a.methods[entry.name].quality) is not None]
    if costs and any(a.manifest.weights.random for a in pair):
        return _Allowed(math.inf, -math.inf, {}, "not judged: random weights are no evidence of quality")
    if costs:
        least_db, metrics = min(c.min_sqnr_db for c in costs), costs[0].metrics
        said = "".join(f", {name} >= {least:g}" for name, least in metrics.items())
        return _Allowed(math.inf, least_db, metrics, f"quantized: SQNR >= {least_db:.0f} dB{said}")
    factor = 1.0 if {EAGER, EXPORTED} & {one, other} else PAIR_FACTOR
    limit = entry.tolerance.max_abs_relative * factor
    least_db = entry.tolerance.min_sqnr_db - (6.0 if factor > 1.0 else 0.0)
    metrics = {o.metric: o.metric_limit for o in entry.outputs if o.metric and o.metric_limit is not None}
    return _Allowed(limit, least_db, metrics, f"max abs <= {limit:.0e} x range, SQNR >= {least_db:.0f} dB")


def _line(
    entry: MethodEntry, one: str, other: str, sides: Mapping[str, _Side], cases: list[Case], allowed: _Allowed
) -> Line:
    worst, label, sqnr, metrics, passed, message = (
        None,
        "",
        float("inf"),
        {},
        bool(cases),
        "" if cases else "they have no size in common",
    )
    for case in cases:
        for output in entry.outputs:
            key = f"{entry.name}/{case.id}/{output.name}"
            missing = next((s for s in (one, other) if key not in sides[s].answers), None)
            if missing is not None:
                passed, message = (
                    False,
                    f"{missing} gave no answer: {sides[missing].failure or 'see its check'}",
                )
                continue
            compared = Comparison.of(sides[other].answers[key], sides[one].answers[key])
            passed &= compared.within(allowed.max_abs_relative, allowed.min_sqnr_db)
            sqnr = min(sqnr, compared.sqnr_db)
            if worst is None or not compared.max_abs_relative <= worst.max_abs_relative:
                worst, label = compared, f"{case.label}: {output.name}"
            if output.metric is not None and output.metric in allowed.metrics:
                value = METRICS[output.metric](sides[other].answers[key], sides[one].answers[key])
                metrics[output.metric] = min(value, metrics.get(output.metric, value))
                passed &= value >= allowed.metrics[output.metric]
    found = worst or Comparison(float("nan"), float("nan"), float("nan"))
    return Line(
        entry.name,
        f"{one} ~ {other}",
        len(cases),
        label,
        found.max_abs,
        found.max_abs_relative,
        sqnr,
        metrics,
        allowed.text,
        bool(passed),
        message,
    )


def write(found: Parity, folder: Path) -> None:
    """Write the figures as JSON and as a page with a plot."""
    from edgeexport.verify.parity.page import render

    folder.mkdir(parents=True, exist_ok=True)
    for name, text in zip(FILES, (json.dumps(_finite(found.to_json()), indent=2) + "\n", render(found))):
        partial = folder / f".{name}.partial"
        partial.write_text(text, encoding="utf-8")
        partial.replace(folder / name)


def _finite(value: Any) -> Any:
    """JSON has no infinity and no NaN: they become text."""
    if isinstance(value, float) and (value != value or abs(value) == float("inf")):
        return str(value)
    if isinstance(value, Mapping):
        return {k: _finite(v) for k, v in value.items()}
    return [_finite(v) for v in value] if isinstance(value, (list, tuple)) else value
