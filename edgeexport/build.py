"""The story: a model's name to verified artifacts, one a target."""

from __future__ import annotations

import contextlib
import datetime
import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

from edgeexport import catalog, text
from edgeexport.artifact import model_schema
from edgeexport.artifact.cases import RecordedCases, record_cases
from edgeexport.artifact.folder import (
    FORMAT,
    GOLDEN,
    PROGRAMS,
    Artifact,
    Staging,
    input_to_json,
    open_artifact,
    record,
    staged,
    write_manifest,
)
from edgeexport.compiler.memory_forecast import Forecast, forecast
from edgeexport.errors import CheckFailed, UsageError
from edgeexport.method import Dim, Finding, Method, Model, Tolerance, Weights
from edgeexport.progress import Progress
from edgeexport.runtime import boards
from edgeexport.verify.checks import run_checks, to_json

if TYPE_CHECKING:
    from edgeexport.catalog import Recipe
    from edgeexport.compiler.capture import Captured
    from edgeexport.compiler.edge_lowering import Delegation
    from edgeexport.compiler.rewrite import PassReport
    from edgeexport.compiler.server_compilation import Compiled
    from edgeexport.runtime.boards import Board

PACKAGES = (
    "edgeexport",
    "torch",
    "torchvision",
    "executorch",
    "transformers",
    "torchao",
    "ultralytics",
    "timm",
)


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
    skip_passes: tuple[str, ...] = (),
    cpu_isa: str | None = None,
    device: str | None = None,
    etrecord: bool = False,
    board: str | None = None,
    progress: Progress | None = None,
) -> tuple[Artifact, ...]:
    """One capture, an artifact a target: build, check and publish them, in order; returns them
    opened.

    `model` is a name of the catalogue or a user's own (`pkg.mod:OBJECT`, `file.py:OBJECT`), `batch`
    is MIN:MAX; `cpu_isa`, `device` and `etrecord` are for targets that have such a setting. `board`
    is what the program must fit: before anything is lowered, by what it is going to take, and
    afterwards by what it takes. Raises UsageError and its kin before any work for what cannot be,
    CaptureError, RewriteError and LoweringError on the way, and CheckFailed when a check failed:
    the artifact is then at `<out>.failed`, and later targets are not built.
    """
    progress = progress or Progress()
    wanted = None if board is None else boards.board(board)
    recipes = _recipes(
        targets, precision, {"cpu_isa": cpu_isa, "device": device, "etrecord": etrecord or None}, wanted
    )
    passes = _without([r.passes for r in recipes], skip_passes)
    weights_asked = Weights.parse(weights)
    found = catalog.model(model)
    dims = _dims(found, batch)
    request = _Request(model, found, precision, _tolerance(found, precision), board)
    outs = outs or [
        Path("build") / _folder_name(model, found) / f"{target}-{precision}" for target in targets
    ]
    with contextlib.ExitStack() as stack:
        stagings = [stack.enter_context(staged(Path(out), force)) for out in outs]
        with progress.step("load weights"):
            module, loaded = found.load(weights_asked)
            methods = found.methods(module, dims)
            files = dict(found.assets(loaded))
        with progress.step("eager answers"):
            recorded = record_cases(methods)
            files[GOLDEN] = recorded.golden
        captured = {}
        for method in methods:
            with progress.step(f"capture {method.name}"):
                captured[method.name] = _capture(method)
        forecasts = {name: forecast(each.program) for name, each in captured.items()}
        if wanted is not None:
            _refuse_unfit(wanted, forecasts)
        source = _Source(methods, captured, forecasts, recorded, loaded, files)
        emit = [_emit(request, source, *each, progress.branch()) for each in zip(recipes, passes, stagings)]
        return tuple(emit)


@dataclass(frozen=True)
class _Request:
    """What was asked for."""

    asked: str
    model: Model
    precision: str
    tolerance: Tolerance
    board: str | None


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


def _emit(
    request: _Request, source: _Source, recipe: Recipe, passes: tuple, staging: Staging, progress: Progress
) -> Artifact:
    """Rewrite, lower, check and publish for one target."""
    programs, reports = {}, {}
    for name, captured in source.captured.items():
        with progress.step(f"rewrite {name}"):
            programs[name], reports[name] = _rewrite(captured, passes)
    program = f"{request.model.name}{recipe.suffix}"
    with progress.step(f"lower to {recipe.name}"):
        emitted = recipe.emit(
            programs, staging.folder / program, **_constants(request, source, recipe, programs)
        )
    for name, content in source.files.items():
        (staging.folder / name).write_bytes(content)
    if recipe.keeps_programs:
        from edgeexport.artifact.exported_programs import save_programs

        with progress.step("keep the captured programs"):
            save_programs(
                {name: captured.program for name, captured in source.captured.items()},
                staging.folder / PROGRAMS,
            )
    files = sorted(path.name for path in staging.folder.iterdir())
    found = request.model
    manifest = {
        "format": FORMAT,
        "created": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "model": {
            "name": found.name,
            "asked": request.asked,
            "summary": found.summary,
            "source": asdict(found.source),
        },
        "target": recipe.name,
        "precision": request.precision,
        "program": program,
        "weights": asdict(source.weights) | {"size_bytes": _weight_bytes(source.methods)},
        "recipe": {
            "name": recipe.name,
            "precision": request.precision,
            "passes": [p.__name__ for p in passes],
            "settings": recipe.settings,
        },
        "versions": _versions(),
        "files": {name: record(staging.folder / name) for name in files},
        "methods": [
            _method_json(m, source, reports[m.name], emitted[m.name], request.tolerance)
            for m in source.methods
        ],
        "prepare": dict(found.prepare),
        "findings": [],
        "timings": progress.timings(),
    }
    return _check_and_publish(staging, manifest, request.board or "", progress)


def _constants(
    request: _Request, source: _Source, recipe: Recipe, programs: Mapping
) -> dict[str, Mapping[str, str]]:
    """What the program says about itself, for a recipe whose programs can."""
    if not recipe.holds_constants:
        return {}
    return {
        "constants": {
            model_schema.METHOD: model_schema.model_schema(
                request.model, request.precision, source.weights, source.methods, programs
            )
        }
    }


def _check_and_publish(staging: Staging, manifest: dict, board: str, progress: Progress) -> Artifact:
    """Check the staged files, write what was found, and move the folder into place or aside."""
    write_manifest(staging.folder, manifest)
    with progress.step("check the emitted file"):
        findings, check_peak = run_checks(open_artifact(staging.folder), board=board)
    _record(manifest, findings)
    manifest["timings"] = progress.timings() | {"check_peak_rss_bytes": check_peak}
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


def _record(manifest: dict, findings: list[Finding]) -> None:
    """Findings, and what they verified, into the manifest: ranges from sizes that ran right, memory
    from the program.
    """
    manifest["findings"] = [to_json(f) for f in findings]
    for entry in manifest["methods"]:
        mine = [f for f in findings if f.method == entry["name"]]
        planned = [f.details["planned_bytes"] for f in mine if f.check == "memory"]
        entry["planned_memory_bytes"] = planned[0] if planned else None
        right = {f.details.get("case") for f in mine if f.check == "numerics" and f.passed}
        for dim in entry["dims"]:
            sizes = sorted({c["sizes"][dim["name"]] for c in entry["cases"] if c["id"] in right})
            dim["sizes"] = sizes
            dim["verified"] = [sizes[0], sizes[-1]] if sizes else None


def _refuse_unfit(board: Board, forecasts: Mapping[str, Forecast]) -> None:
    """Raise UsageError where a method is going to take more than the board has."""
    for name, each in forecasts.items():
        if each.weight_bytes > board.file_limit_bytes:
            raise UsageError(
                f"'{name}' does not fit {board.name}: its weights are {text.size(each.weight_bytes)}, a"
                f" file may have {text.size(board.file_limit_bytes)}."
            )
        if each.peak_bytes > board.peak_limit_bytes:
            raise UsageError(
                f"'{name}' does not fit {board.name}: at its greatest sizes it is going to take"
                f" {text.size(each.peak_bytes)} ({text.size(each.live_bytes)} of them activations),"
                f" {text.size(board.peak_limit_bytes)} are allowed. Lower its greatest sizes (--batch), or"
                " take a smaller variant."
            )


def _recipes(
    targets: Sequence[str], precision: str, settings: Mapping[str, str | bool | None], board: Board | None
) -> list[Recipe]:
    """The recipe of each target, with those settings that are given, or else the board's.

    Raises UsageError for what this machine, target or board cannot do.
    """
    if len(set(targets)) < len(targets):
        raise UsageError(f"A target is given twice: {', '.join(targets)}.")
    given = {name: value for name, value in settings.items() if value is not None}
    for target in targets:
        if board is not None and target not in board.targets:
            raise UsageError(
                f"The board {board.name} does not run {target}; it runs {', '.join(board.targets)}."
            )
    defaults = {"cpu_isa": board.cpu_isa} if board is not None and board.cpu_isa else {}
    recipes = [catalog.recipe(target, precision, defaults | given) for target in targets]
    unknown = given.keys() - {name for recipe in recipes for name in recipe.settings}
    if unknown:
        raise UsageError(
            f"{', '.join(targets)} has no setting"
            f" {', '.join('--' + name.replace('_', '-') for name in sorted(unknown))}."
        )
    for recipe in recipes:
        recipe.require()
    return recipes


def _without(passes: list[tuple], names: tuple[str, ...]) -> list[tuple]:
    """The passes of each recipe without those `names`."""
    known = dict.fromkeys(p.__name__ for each in passes for p in each)
    for name in names:
        if name not in known:
            raise UsageError(f"This recipe has no pass '{name}' to skip. It has: {', '.join(known)}.")
    return [tuple(p for p in each if p.__name__ not in names) for each in passes]


def _dims(found: Model, batch: str | None) -> dict[str, Dim]:
    dims = {d.name: d for d in found.dims}
    if batch is not None:
        if "batch" not in dims:
            raise UsageError(f"{found.name} has no batch dimension; it has: {', '.join(dims) or 'none'}.")
        dims["batch"] = Dim.parse("batch", batch)
    return dims


def _tolerance(found: Model, precision: str) -> Tolerance:
    if precision not in found.tolerances:
        raise UsageError(
            f"{found.name} declares no tolerance for {precision}; it has: {', '.join(found.tolerances)}."
        )
    return found.tolerances[precision]


def _folder_name(asked: str, found: Model) -> str:
    """The name as the user typed it, unless it is a path."""
    return found.name if ":" in asked else asked


def _capture(method: Method) -> Captured:
    from edgeexport.compiler.capture import capture

    return capture(method)


def _rewrite(captured: Captured, passes: tuple):
    from edgeexport.artifact.program_state import copied
    from edgeexport.compiler.rewrite import run_passes

    return run_passes(copied(captured.program), passes)


def _method_json(
    method: Method,
    source: _Source,
    reports: list[PassReport],
    emitted: Delegation | Compiled,
    tolerance: Tolerance,
) -> dict:
    captured = source.captured[method.name]
    return {
        "name": method.name,
        "inputs": [input_to_json(i) for i in method.inputs],
        "outputs": [
            asdict(o) | {"dtype": dtype, "shape_at_least": shape}
            for o, (dtype, shape) in zip(method.outputs, source.recorded.outputs[method.name])
        ],
        "dims": [
            {"name": d.name, "asked": [d.min, d.max], "verified": None, "sizes": []} for d in method.dims
        ],
        "state": _state(captured),
        "capture": {"mode": captured.mode, "strict_failure": captured.strict_failure},
        "passes": [asdict(r) for r in reports],
        "delegation": None,
        "compiled": None,
        emitted.manifest_key: asdict(emitted),
        "forecast": (
            asdict(source.forecasts[method.name]) | {"peak_bytes": source.forecasts[method.name].peak_bytes}
        ),
        "planned_memory_bytes": None,
        "planned_limit_bytes": method.planned_limit_bytes,
        "tolerance": asdict(tolerance),
        "cases": source.recorded.cases[method.name],
    }


def _state(captured: Captured) -> list[dict]:
    """The buffers that a call changes and a later call sees, with the dtype and shape of each."""
    program = captured.program
    tensors = {
        name: program.state_dict.get(name, program.constants.get(name))
        for name in program.graph_signature.buffers_to_mutate.values()
    }
    return [
        {"name": n, "dtype": str(t.dtype).removeprefix("torch."), "shape": list(t.shape)}
        for n, t in sorted(tensors.items())
    ]


def _weight_bytes(methods: tuple[Method, ...]) -> int:
    """Bytes of the distinct parameters of all methods: what an fp32 file cannot be smaller than."""
    parameters = {p.data_ptr(): p.numel() * p.element_size() for m in methods for p in m.module.parameters()}
    return sum(parameters.values())


def _versions() -> Mapping[str, str]:
    found = {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "machine": platform.machine(),
    }
    for package in PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            found[package] = "not installed"
    return found
