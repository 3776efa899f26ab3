"""The story: a model's name to verified artifacts, one a target."""

from __future__ import annotations

import contextlib
import datetime
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from edgeexport.artifact import model_schema
from edgeexport.artifact.cases import RecordedCases, record_cases
from edgeexport.artifact.folder import (
    EXPECTED,
    GOLDEN,
    PROGRAMS,
    Artifact,
    Staging,
    open_artifact,
    record,
    staged,
    write_manifest,
)
from edgeexport.artifact.manifest import (
    FORMAT,
    Manifest,
    ModelFacts,
    PassReport,
    RecipeFacts,
    Timings,
    WeightsFacts,
)
from edgeexport.artifact.targets import Target, target
from edgeexport.errors import CheckFailed
from edgeexport.method import Method, Weights
from edgeexport.progress import Progress
from edgeexport.request import Request, request
from edgeexport.verify.checks import run_checks

if TYPE_CHECKING:
    from torch.export import ExportedProgram

    from edgeexport.catalog import Recipe
    from edgeexport.compiler.calibration import Calibration
    from edgeexport.compiler.capture import Captured
    from edgeexport.compiler.memory_forecast import Forecast


def build(model: str, *, target: str = "xnnpack", out: str | Path | None = None, **options) -> Artifact:
    """Build, check and publish one artifact; returns it opened.

    `out` is its folder; `options` are those of `build_targets`.
    """
    return build_targets(model, targets=(target,), outs=None if out is None else (out,), **options)[0]


def build_targets(
    model: str,
    *,
    targets: Sequence[str] = ("xnnpack",),
    precision: str = "fp32",
    calibration: str = "samples",
    weights: str = "pretrained",
    batch: str | None = None,
    outs: Sequence[str | Path] | None = None,
    force: bool = False,
    skip_passes: Sequence[str] = (),
    board: str | None = None,
    progress: Progress | None = None,
    **settings: str | bool | None,
) -> tuple[Artifact, ...]:
    """One capture, an artifact a target: build, check and publish them, in order; returns them
    opened.

    `model` is a name of the catalogue or a user's own (`pkg.mod:OBJECT`, `file.py:OBJECT`), `batch`
    is MIN:MAX; `calibration` is `samples`, `noise` where the model has no better samples, or a
    folder; `settings` are those that the targets have (`cpu_isa`, `device`, `etrecord`).
    `board` is what the program must fit: before anything is lowered, by what it is going to take,
    and afterwards by what it takes. Raises UsageError and its kin before any work for what cannot
    be, CaptureError, RewriteError and LoweringError on the way, and CheckFailed when a check
    failed: the artifact is then at `<out>.failed`, and later targets are not built.
    """
    progress = progress or Progress()
    asked = request(
        model,
        targets=targets,
        precision=precision,
        calibration=calibration,
        weights=weights,
        batch=batch,
        board=board,
        skip_passes=skip_passes,
        settings=settings,
    )
    with contextlib.ExitStack() as stack:
        stagings = [stack.enter_context(staged(Path(out), force)) for out in outs or asked.folders()]
        source = _capture(asked, progress)
        return tuple(
            _emit(asked, source, recipe, staging, progress.branch())
            for recipe, staging in zip(asked.recipes, stagings)
        )


@dataclass(frozen=True)
class _Source:
    """What every target is emitted from: the methods with their captured programs and what these
    will take, eager's answers, and the files that all artifacts hold.
    """

    methods: tuple[Method, ...]
    captured: Mapping[str, Captured]
    forecasts: Mapping[str, Forecast]
    recorded: RecordedCases
    calibration: Calibration
    weights: Weights
    files: Mapping[str, bytes]


def _capture(asked: Request, progress: Progress) -> _Source:
    """Load the weights, ask the original model, capture its methods, and see whether they fit."""
    from edgeexport.compiler.calibration import Calibration
    from edgeexport.compiler.capture import capture
    from edgeexport.compiler.memory_forecast import forecast, refuse_unfit

    with progress.step("load weights"):
        module, loaded = asked.model.load(asked.weights)
        methods = asked.model.methods(module, asked.dims)
        files = dict(asked.model.assets(loaded))
    with progress.step("eager answers"):
        recorded = record_cases(methods)
    captured = {}
    for method in methods:
        with progress.step(f"capture {method.name}"):
            captured[method.name] = capture(method)
    forecasts = {name: forecast(each.program) for name, each in captured.items()}
    if asked.board is not None and not asked.precision.changes:
        for each in asked.targets:
            refuse_unfit(asked.board, each, forecasts)
    by_name = {method.name: method for method in methods}
    calibration = Calibration(asked.calibration, asked.model, by_name, recorded.answers())
    files[GOLDEN] = recorded.golden
    return _Source(methods, captured, forecasts, recorded, calibration, loaded, files)


def _emit(asked: Request, source: _Source, recipe: Recipe, staging: Staging, progress: Progress) -> Artifact:
    """Rewrite, change the precision, lower, check and publish for one target."""
    aim = target(recipe.name)
    made = _rewrite(asked, source, recipe, progress)
    program = f"{asked.model.name}.{aim.format}"
    with progress.step(f"lower to {recipe.name}"):
        constants = _constants(asked, source, aim, made.programs)
        emitted = recipe.emit(made.programs, staging.folder / program, constants)
    _write_files(source, made.files, aim, staging, progress)
    manifest = _manifest(asked, source, recipe, program, made, emitted, staging, progress)
    return _check_and_publish(staging, manifest, asked.board or "", progress)


@dataclass(frozen=True)
class _Rewritten:
    """What one target lowers: the methods' programs, what each pass did and what they will take
    now; and the files of a quantized artifact.
    """

    programs: Mapping[str, ExportedProgram]
    reports: Mapping[str, Sequence[PassReport]]
    forecasts: Mapping[str, Forecast]
    files: Mapping[str, bytes]


def _rewrite(asked: Request, source: _Source, recipe: Recipe, progress: Progress) -> _Rewritten:
    """The target's passes, then the precision's, whose answers are asked of PyTorch."""
    from edgeexport.artifact.program_state import copied
    from edgeexport.compiler.expected_answers import expected_answers
    from edgeexport.compiler.memory_forecast import refuse_unfit
    from edgeexport.compiler.rewrite import run_passes

    programs, reports = {}, {}
    for name, captured in source.captured.items():
        with progress.step(f"rewrite {name}"):
            rewritten, done = run_passes(copied(captured.program), recipe.passes)
            programs[name], more = asked.precision.apply(name, rewritten, source.calibration)
            reports[name] = (*done, *more)
    if not asked.precision.changes:
        return _Rewritten(programs, reports, source.forecasts, {})
    asked.precision.require_change(reports.values(), asked.model.name)
    forecasts = {name: source.forecasts[name].with_weights_of(each) for name, each in programs.items()}
    if asked.board is not None:
        refuse_unfit(asked.board, target(recipe.name), forecasts)
    with progress.step(f"{asked.precision.name} answers"):
        expected = expected_answers(programs, source.methods, source.recorded)
    return _Rewritten(programs, reports, forecasts, {EXPECTED: expected})


def _constants(asked: Request, source: _Source, aim: Target, programs: Mapping) -> Mapping[str, str]:
    """What the program says about itself, where its kind can."""
    if not aim.describes_itself:
        return {}
    said = model_schema.model_schema(
        asked.model, asked.precision.name, source.weights, source.methods, programs
    )
    return {model_schema.METHOD: said}


def _write_files(
    source: _Source, files: Mapping[str, bytes], aim: Target, staging: Staging, progress: Progress
) -> None:
    """What lies beside the program."""
    for name, content in {**source.files, **files}.items():
        (staging.folder / name).write_bytes(content)
    if aim.keeps_programs:
        from edgeexport.artifact.exported_programs import save_programs

        with progress.step("keep the captured programs"):
            programs = {name: captured.program for name, captured in source.captured.items()}
            save_programs(programs, staging.folder / PROGRAMS)


def _manifest(asked, source, recipe, program, made, emitted, staging, progress) -> Manifest:
    """The manifest before the checks."""
    from edgeexport.compiler.manifest_entries import entry, versions, weight_bytes

    model, precision = asked.model, asked.precision
    passes = tuple(p.__name__ for p in recipe.passes)
    return Manifest(
        format=FORMAT,
        created=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        model=ModelFacts(model.name, asked.asked, model.summary, model.source),
        target=recipe.name,
        precision=precision.name,
        program=program,
        weights=WeightsFacts(**vars(source.weights), size_bytes=weight_bytes(source.methods)),
        recipe=RecipeFacts(
            recipe.name,
            precision.name,
            passes,
            recipe.settings,
            precision.rules or None,
            source.calibration.facts,
        ),
        versions=versions(),
        files={path.name: record(path) for path in sorted(staging.folder.iterdir())},
        methods=tuple(
            entry(
                method,
                source.captured[method.name],
                made.forecasts[method.name].on(target(recipe.name)),
                source.recorded,
                made.reports[method.name],
                emitted[method.name],
                asked.tolerance,
                precision.quality,
            )
            for method in source.methods
        ),
        prepare=model.prepare,
        pipelines=model.pipelines,
        findings=(),
        timings=Timings.of(progress),
    )


def _check_and_publish(staging: Staging, manifest: Manifest, board: str, progress: Progress) -> Artifact:
    """Check the staged files, write what was found, and move the folder into place or aside."""
    write_manifest(staging.folder, manifest)
    with progress.step("check the emitted file"):
        findings, check_peak = run_checks(open_artifact(staging.folder), board=board)
    manifest = replace(manifest.checked(findings), timings=Timings.of(progress, check_peak))
    write_manifest(staging.folder, manifest)
    failed = [f for f in findings if not f.passed]
    path = staging.publish(".failed" if failed else "")
    if failed:
        lines = "\n".join(
            f"  {f.check} {f.method or ''}: {f.measured}; allowed: {f.limit}. {f.message}" for f in failed
        )
        raise CheckFailed(
            f"{len(failed)} of {len(findings)} checks failed; the artifact is kept for inspection at"
            f" {path}:\n{lines}"
        )
    return Artifact(path, manifest, str(path))
