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
    GOLDEN,
    PROGRAMS,
    Artifact,
    Staging,
    open_artifact,
    record,
    staged,
    write_manifest,
)
from edgeexport.artifact.manifest import FORMAT, Manifest, ModelFacts, RecipeFacts, Timings, WeightsFacts
from edgeexport.artifact.targets import Target, target
from edgeexport.errors import CheckFailed
from edgeexport.method import Method, Weights
from edgeexport.progress import Progress
from edgeexport.request import Request, request
from edgeexport.verify.checks import run_checks

if TYPE_CHECKING:
    from edgeexport.catalog import Recipe
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
    is MIN:MAX; `settings` are those that the targets have (`cpu_isa`, `device`, `etrecord`).
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
    weights: Weights
    files: Mapping[str, bytes]


def _capture(asked: Request, progress: Progress) -> _Source:
    """Load the weights, ask the original model, capture its methods, and see whether they fit."""
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
    if asked.board is not None:
        for each in asked.targets:
            refuse_unfit(asked.board, each, forecasts)
    return _Source(methods, captured, forecasts, recorded, loaded, files | {GOLDEN: recorded.golden})


def _emit(asked: Request, source: _Source, recipe: Recipe, staging: Staging, progress: Progress) -> Artifact:
    """Rewrite, change the precision, lower, check and publish for one target."""
    from edgeexport.artifact.program_state import copied
    from edgeexport.compiler.rewrite import run_passes

    programs, reports = {}, {}
    for name, captured in source.captured.items():
        with progress.step(f"rewrite {name}"):
            rewritten, done = run_passes(copied(captured.program), recipe.passes)
            programs[name], more = asked.precision.apply(rewritten)
            reports[name] = (*done, *more)
    aim = target(recipe.name)
    program = f"{asked.model.name}.{aim.format}"
    with progress.step(f"lower to {recipe.name}"):
        emitted = recipe.emit(programs, staging.folder / program, _constants(asked, source, aim, programs))
    _write_files(source, aim, staging, progress)
    manifest = _manifest(asked, source, recipe, program, reports, emitted, staging, progress)
    return _check_and_publish(staging, manifest, asked.board or "", progress)


def _constants(asked: Request, source: _Source, aim: Target, programs: Mapping) -> Mapping[str, str]:
    """What the program says about itself, where its kind can."""
    if not aim.describes_itself:
        return {}
    said = model_schema.model_schema(
        asked.model, asked.precision.name, source.weights, source.methods, programs
    )
    return {model_schema.METHOD: said}


def _write_files(source: _Source, aim: Target, staging: Staging, progress: Progress) -> None:
    """What lies beside the program."""
    for name, content in source.files.items():
        (staging.folder / name).write_bytes(content)
    if aim.keeps_programs:
        from edgeexport.artifact.exported_programs import save_programs

        with progress.step("keep the captured programs"):
            programs = {name: captured.program for name, captured in source.captured.items()}
            save_programs(programs, staging.folder / PROGRAMS)


def _manifest(asked, source, recipe, program, reports, emitted, staging, progress) -> Manifest:
    """The manifest before the checks."""
    from edgeexport.compiler.manifest_entries import entry, versions, weight_bytes

    model, precision = asked.model, asked.precision
    passes = tuple(p.__name__ for p in (*recipe.passes, *precision.passes))
    return Manifest(
        format=FORMAT,
        created=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        model=ModelFacts(model.name, asked.asked, model.summary, model.source),
        target=recipe.name,
        precision=precision.name,
        program=program,
        weights=WeightsFacts(**vars(source.weights), size_bytes=weight_bytes(source.methods)),
        recipe=RecipeFacts(recipe.name, precision.name, passes, recipe.settings),
        versions=versions(),
        files={path.name: record(path) for path in sorted(staging.folder.iterdir())},
        methods=tuple(
            entry(
                method,
                source.captured[method.name],
                source.forecasts[method.name].on(target(recipe.name)),
                source.recorded,
                reports[method.name],
                emitted[method.name],
                asked.tolerance,
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
