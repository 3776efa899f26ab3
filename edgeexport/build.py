"""The story: a model's name to a verified artifact."""

from __future__ import annotations

import datetime
import platform
from collections.abc import Mapping
from dataclasses import asdict
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgeexport import catalog
from edgeexport.artifact import FORMAT, GOLDEN, Artifact, Staging, input_to_json, open_artifact, record, staged, write_manifest
from edgeexport.checks import run_checks, to_json
from edgeexport.errors import CheckFailed, UsageError
from edgeexport.method import Dim, Finding, Method, Model, Tolerance, Weights
from edgeexport.progress import Progress

if TYPE_CHECKING:
    from edgeexport.capture import Captured
    from edgeexport.lower import Delegation
    from edgeexport.rewrite import PassReport

PACKAGES = ("edgeexport", "torch", "torchvision", "executorch", "transformers", "torchao", "ultralytics", "timm")


def build(
    model: str,
    *,
    target: str = "xnnpack",
    precision: str = "fp32",
    weights: str = "pretrained",
    batch: str | None = None,
    out: str | Path | None = None,
    force: bool = False,
    skip_passes: tuple[str, ...] = (),
    progress: Progress | None = None,
) -> Artifact:
    """Build, check and publish an artifact; returns it opened.

    `model` is a name of the catalogue or a user's own (`pkg.mod:OBJECT`, `file.py:OBJECT`), `batch` is MIN:MAX.
    Raises UsageError and its kin before any work for what cannot be, CaptureError, RewriteError and LoweringError on
    the way, and CheckFailed when a check failed: the artifact is then at `<out>.failed`.
    """
    progress = progress or Progress()
    recipe = catalog.recipe(target, precision)
    passes = _without(recipe.passes, skip_passes)
    weights_asked = Weights.parse(weights)
    found = catalog.model(model)
    dims = _dims(found, batch)
    tolerance = _tolerance(found, precision)
    out = Path(out) if out is not None else Path("build") / _folder_name(model, found) / f"{target}-{precision}"
    with staged(out, force) as staging:
        with progress.step("load weights"):
            module, loaded = found.load(weights_asked)
            methods = found.methods(module, dims)
            assets = _write_assets(found.assets(loaded), staging.folder)
        with progress.step("eager answers"):
            cases, shapes = _golden(methods, staging.folder / GOLDEN)
        programs, captured, reports = {}, {}, {}
        for method in methods:
            with progress.step(f"capture {method.name}"):
                captured[method.name] = _capture(method)
            with progress.step(f"rewrite {method.name}"):
                programs[method.name], reports[method.name] = _rewrite(captured[method.name], passes)
        program = f"{found.name}{recipe.suffix}"
        with progress.step(f"lower to {target}"):
            delegation = recipe.emit(programs, staging.folder / program)
        manifest = {
            "format": FORMAT,
            "created": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            "model": {"name": found.name, "asked": model, "summary": found.summary, "source": asdict(found.source)},
            "target": target,
            "precision": precision,
            "program": program,
            "weights": asdict(loaded) | {"size_bytes": _weight_bytes(methods)},
            "recipe": {"name": recipe.name, "precision": precision, "passes": [p.__name__ for p in passes]},
            "versions": _versions(),
            "files": {name: record(staging.folder / name) for name in (program, GOLDEN, *assets)},
            "methods": [
                _method_json(m, captured[m.name], reports[m.name], delegation[m.name], cases[m.name], shapes[m.name], tolerance)
                for m in methods
            ],
            "prepare": dict(found.prepare),
            "findings": [],
            "timings": progress.timings(),
        }
        return _check_and_publish(staging, manifest, progress)


def _check_and_publish(staging: Staging, manifest: dict, progress: Progress) -> Artifact:
    """Check the staged files, write what was found, and move the folder into place or aside."""
    write_manifest(staging.folder, manifest)
    with progress.step("check the emitted file"):
        findings, check_peak = run_checks(open_artifact(staging.folder))
    _record(manifest, findings)
    manifest["timings"] = progress.timings() | {"check_peak_rss_bytes": check_peak}
    write_manifest(staging.folder, manifest)
    failed = [f for f in findings if not f.passed]
    path = staging.publish(".failed" if failed else "")
    if failed:
        lines = "\n".join(f"  {f.check} {f.method or ''}: {f.measured}; allowed: {f.limit}. {f.message}" for f in failed)
        raise CheckFailed(f"{len(failed)} of {len(findings)} checks failed; the artifact is kept for inspection at {path}:\n{lines}")
    return Artifact(path, manifest)


def _record(manifest: dict, findings: list[Finding]) -> None:
    """Findings, and what they verified, into the manifest: ranges from sizes that ran right, memory from the program."""
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


def _without(passes: tuple, names: tuple[str, ...]) -> tuple:
    known = [p.__name__ for p in passes]
    for name in names:
        if name not in known:
            raise UsageError(f"This recipe has no pass '{name}' to skip. It has: {', '.join(dict.fromkeys(known))}.")
    return tuple(p for p in passes if p.__name__ not in names)


def _dims(found: Model, batch: str | None) -> dict[str, Dim]:
    dims = {d.name: d for d in found.dims}
    if batch is not None:
        if "batch" not in dims:
            raise UsageError(f"{found.name} has no batch dimension; it has: {', '.join(dims) or 'none'}.")
        dims["batch"] = Dim.parse("batch", batch)
    return dims


def _tolerance(found: Model, precision: str) -> Tolerance:
    if precision not in found.tolerances:
        raise UsageError(f"{found.name} declares no tolerance for {precision}; it has: {', '.join(found.tolerances)}.")
    return found.tolerances[precision]


def _folder_name(asked: str, found: Model) -> str:
    """The name as the user typed it, unless it is a path."""
    return found.name if ":" in asked else asked


def _golden(methods: tuple[Method, ...], path: Path) -> tuple[dict, dict]:
    """Eager's answers to every case, in a file; the cases, and the outputs' shapes and dtypes, by method."""
    from safetensors.torch import save

    from edgeexport.checks.numerics import GoldenAnswers, case_calls
    from edgeexport.inputs import Photo, digest

    answers: dict[str, Any] = {}
    cases: dict[str, list] = {}
    shapes: dict[str, list] = {}
    by_name = {m.name: m for m in methods}
    for method in methods:
        sizes = method.cases()
        kinds = [("structured", s) for s in sizes]
        if any(isinstance(i.sample, Photo) for i in method.inputs):
            kinds.append(("random", sizes[0]))
        cases[method.name] = []
        for index, (kind, size) in enumerate(kinds):
            case = {"id": str(index), "kind": kind, "sizes": size, "seed": 10 * index, "setup": _setup(method, size, 10 * index)}
            before, inputs = case_calls(case, by_name, method, GoldenAnswers(answers))
            if before:
                by_name[method.setup.method].answer(*before)
            outputs = method.answer(*inputs)
            if len(outputs) != len(method.outputs):
                raise UsageError(f"'{method.name}' returns {len(outputs)} tensors; {len(method.outputs)} outputs are declared.")
            for spec, tensor in zip(method.outputs, outputs):
                answers[f"{method.name}/{index}/{spec.name}"] = tensor.contiguous().clone()
            cases[method.name].append(case | {"inputs_sha256": digest((*before, *inputs))})
            shapes.setdefault(method.name, [(str(t.dtype).removeprefix("torch."), list(t.shape)) for t in outputs])
    path.write_bytes(save(answers))  # not save_file: its errors about a full disk are its own
    return cases, shapes


def _setup(method: Method, sizes: Mapping[str, int], seed: int) -> dict | None:
    """The call before a case that brings the state to where it starts, as manifest data."""
    if method.setup is None:
        return None
    wanted = {theirs: sizes[ours] for theirs, ours in method.setup.sizes.items()}
    return {"method": method.setup.method, "kind": "structured", "sizes": wanted, "seed": seed}


def _write_assets(assets: Mapping[str, bytes], folder: Path) -> tuple[str, ...]:
    """Write the model's files that an app needs beside the program; their names."""
    for name, content in assets.items():
        (folder / name).write_bytes(content)
    return tuple(assets)


def _capture(method: Method) -> Captured:
    from edgeexport.capture import capture

    return capture(method)


def _rewrite(captured: Captured, passes: tuple):
    from edgeexport.rewrite import run_passes

    return run_passes(captured.program, passes)


def _method_json(
    method: Method, captured: Captured, reports: list[PassReport], delegation: Delegation, cases: list, shapes: list, tolerance: Tolerance
) -> dict:
    return {
        "name": method.name,
        "inputs": [input_to_json(i) for i in method.inputs],
        "outputs": [asdict(o) | {"dtype": dtype, "shape_at_least": shape} for o, (dtype, shape) in zip(method.outputs, shapes)],
        "dims": [{"name": d.name, "asked": [d.min, d.max], "verified": None, "sizes": []} for d in method.dims],
        "state": _state(captured),
        "capture": {"mode": captured.mode, "strict_failure": captured.strict_failure},
        "passes": [asdict(r) for r in reports],
        "delegation": asdict(delegation),
        "planned_memory_bytes": None,
        "planned_limit_bytes": method.planned_limit_bytes,
        "tolerance": asdict(tolerance),
        "cases": cases,
    }


def _state(captured: Captured) -> list[dict]:
    """The buffers that a call changes and a later call sees, with the dtype and shape of each."""
    program = captured.program
    tensors = {name: program.state_dict.get(name, program.constants.get(name)) for name in program.graph_signature.buffers_to_mutate.values()}
    return [{"name": n, "dtype": str(t.dtype).removeprefix("torch."), "shape": list(t.shape)} for n, t in sorted(tensors.items())]


def _weight_bytes(methods: tuple[Method, ...]) -> int:
    """Bytes of the distinct parameters of all methods: what an fp32 file cannot be smaller than."""
    parameters = {p.data_ptr(): p.numel() * p.element_size() for m in methods for p in m.module.parameters()}
    return sum(parameters.values())


def _versions() -> Mapping[str, str]:
    found = {"python": platform.python_version(), "platform": platform.platform(), "machine": platform.machine()}
    for package in PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            found[package] = "not installed"
    return found
