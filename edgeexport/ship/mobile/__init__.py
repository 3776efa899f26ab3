"""Artifacts as libraries for apps: the program, a typed API, and pre- and post-processing in the
platform's own language.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import re
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import ModuleType

from edgeexport.artifact.folder import Artifact, Kind, open_artifact, record, staged
from edgeexport.artifact.manifest import Manifest
from edgeexport.artifact.signatures import Call, calls_of
from edgeexport.artifact.targets import is_pte
from edgeexport.errors import ArtifactError, UnknownName, UsageError, foreign_errors
from edgeexport.progress import Progress

RECORD = "edgeexport-package.json"
"""What a package was made from, and the hash of each of its files."""

PACKAGE = Kind("a package", RECORD)

COPYLEFT = ("AGPL", "GPL")
"""Licences that ask something of the app that a model is in."""


@dataclass(frozen=True)
class Request:
    """What a platform writes a package from.

    `pipeline` is one of the platform's PIPELINES, or None; `runtime_version` is ExecuTorch's;
    `notes` are for whoever uses it.

    With `on_demand` the package is without the program, which the app fetches.
    """

    artifact: Artifact
    app_id: str
    pipeline: str | None
    calls: tuple[Call, ...]
    runtime_version: str
    notes: tuple[str, ...]
    on_demand: bool = False

    @property
    def manifest(self) -> Manifest:
        return self.artifact.manifest

    @property
    def program_sha256(self) -> str:
        return self.manifest.program_file.sha256


@dataclass(frozen=True)
class Package:
    """What was written: the project's folder, files made from it, and what to know about it."""

    path: Path
    files: tuple[Path, ...]
    app_id: str
    pipeline: str | None
    notes: tuple[str, ...]


def package(
    path: str | Path,
    platform: str,
    out: str | Path | None = None,
    app_id: str | None = None,
    *,
    runtime_version: str | None = None,
    zipped: bool = False,
    classes: str | Path | None = None,
    on_demand: bool = False,
    allow_random: bool = False,
    allow_failed: bool = False,
    force: bool = False,
    progress: Progress | None = None,
) -> Package:
    """Write the artifact at `path` as a library project for `platform` into `out`, by default
    beside the artifact.

    `app_id` is the package name of its code, `runtime_version` the ExecuTorch that the app has
    (default: the one that built the program). `zipped` writes the project into a .zip too,
    `classes` is a jar of the project's compiled classes to make a platform's own file of. With
    `on_demand` the program is not in the app, which fetches it when it is first used. Random
    weights and failed checks are refused unless allowed. Raises UsageError and its kin before any
    work for what cannot be; nothing half-written is left.
    """
    progress = progress or Progress()
    writer = _platform(platform)
    artifact = open_artifact(path, is_pte)
    _refuse_program(artifact, writer, allow_random, allow_failed)
    if on_demand and not getattr(writer, "ON_DEMAND", False):
        raise UsageError(
            "--on-demand is for a platform whose packages can fetch their program: android. A package for"
            f" {platform} has it inside."
        )
    out = Path(out) if out is not None else _beside(Path(path)) / platform
    refuse_inside(out, Path(path))
    request = replace(_request(artifact, writer, app_id, runtime_version), on_demand=on_demand)
    extras = _extras(out, writer, zipped, classes, force)
    from edgeexport.ship.mobile import golden

    with staged(out, force, PACKAGE) as staging, foreign_errors(str(out)), contextlib.ExitStack() as stack:
        with progress.step("record what it answers"):
            golden.write(
                golden.record(artifact, pipeline=request.pipeline is not None), staging.folder / writer.GOLDEN
            )
        with progress.step(f"write the project for {platform}"):
            writer.write(request, staging.folder)
            _write_record(request, platform, staging.folder)
        partial = Path(
            stack.enter_context(tempfile.TemporaryDirectory(prefix=f".{out.name}.partial-", dir=out.parent))
        )
        for extra in extras:
            with progress.step(f"write {extra.path.name}"):
                extra.write(request, staging.folder, partial / extra.path.name)
        staging.publish()
        for extra in extras:
            (partial / extra.path.name).replace(extra.path)
    return Package(
        out, tuple(extra.path for extra in extras), request.app_id, request.pipeline, request.notes
    )


def known_platforms() -> list[str]:
    """The platforms that packages can be written for."""
    return sorted(path.stem for path in (Path(__file__).parent / "platforms").glob("[a-z]*.py"))


def _platform(name: str) -> ModuleType:
    if name not in known_platforms():
        raise UnknownName("platform", name, known_platforms())
    return importlib.import_module(f"edgeexport.ship.mobile.platforms.{name}")


def _refuse_program(artifact: Artifact, writer: ModuleType, allow_random: bool, allow_failed: bool) -> None:
    """Raise UsageError for a program that no app should have, or that the platform's runtime does
    not run.
    """
    from edgeexport.artifact.pte import read_methods

    refuse_unready(artifact, allow_random, allow_failed)
    manifest = artifact.manifest
    backends = {backend for method in read_methods(artifact.program_path) for backend in method.backends}
    if backends - writer.BACKENDS:
        raise UsageError(
            f"{artifact.name} needs {', '.join(sorted(backends - writer.BACKENDS))}, which {writer.RUNTIME}"
            f" does not have. It has {', '.join(writer.BACKENDS)}."
        )
    for entry in manifest.methods:
        for spec in (*entry.inputs, *entry.outputs):
            if spec.dtype not in writer.DTYPES:
                raise UsageError(
                    f"'{spec.name}' of '{entry.name}' is {spec.dtype}, which a package has no"
                    f" tensors of. It has {', '.join(writer.DTYPES)}."
                )


def refuse_unready(artifact: Artifact, allow_random: bool, allow_failed: bool) -> None:
    """Raise UsageError for an artifact that no app should have: one for servers, and unless allowed
    one that failed its checks or has random weights.
    """
    manifest = artifact.manifest
    if not is_pte(artifact.target):
        raise UsageError(
            f"{artifact.name} holds {manifest.program}, which is for servers. Build the model with"
            " --target xnnpack and package that."
        )
    if manifest.failed_checks and not allow_failed:
        raise UsageError(
            f"{artifact.name} failed its checks ({', '.join(manifest.failed_checks)}), so no app should have"
            " it. Give --allow-failed to look into it there."
        )
    if manifest.weights.random and not allow_random:
        raise UsageError(
            f"{artifact.name} has random weights: what it says means nothing. Build it with a checkpoint, or"
            " give --allow-random to try the app around it."
        )


def _beside(path: Path) -> Path:
    """The folder that an artifact is in; one of an archive is where the archive is."""
    return path.parent.parent if path.parent.is_file() else path.parent


def refuse_inside(out: Path, artifact: Path) -> None:
    """Raise ArtifactError for an output that is in the folder of the artifact, or is it."""
    inner, outer = out.resolve(), artifact.resolve()
    if inner == outer or outer in inner.parents:
        raise ArtifactError(
            f"{out} is inside the artifact {artifact}, whose files are not to be changed. Choose another"
            " --out."
        )


def _request(
    artifact: Artifact, writer: ModuleType, app_id: str | None, runtime_version: str | None
) -> Request:
    from edgeexport.ship.mobile.golden import pipeline_name

    manifest = artifact.manifest
    known = pipeline_name(manifest)
    pipeline = known if known in writer.PIPELINES else None
    version = _runtime_version(manifest.versions["executorch"], runtime_version)
    return Request(
        artifact,
        writer.app_id(app_id, manifest.model.name),
        pipeline,
        calls_of(artifact),
        version,
        tuple(_notes(manifest, pipeline, version)),
    )


def _runtime_version(built: str, wanted: str | None) -> str:
    """The version of ExecuTorch that the app has, if it loads what `built` made.

    ExecuTorch promises that a program runs with the next minor or major release, and nothing for a
    runtime that is older than the program (its runtime/COMPATIBILITY.md). Patch releases are not
    told apart. Raises UsageError.
    """
    if wanted is None:
        return ".".join(map(str, _version(built)))
    if _version(wanted)[:2] < _version(built)[:2]:
        raise UsageError(
            f"ExecuTorch {wanted} is older than {built}, which made this program: it need not load it"
            " (ExecuTorch promises only that newer runtimes load older programs). Give --executorch-version"
            f" {'.'.join(map(str, _version(built)[:2]))} or newer, or build the program again with {wanted}."
        )
    return wanted


def _version(text: str) -> tuple[int, ...]:
    """(major, minor, patch); what follows the numbers is a pre-release or a build, and says nothing
    here.
    """
    found = re.fullmatch(r"(\d+)\.(\d+)(?:\.(\d+))?(?:[-+]?[A-Za-z][\w.+-]*|\+[\w.]+)?", text)
    if found is None:
        raise UsageError(f"'{text}' is no version of ExecuTorch: write for example 1.5.1.")
    return tuple(int(part or 0) for part in found.groups())


def _notes(manifest: Manifest, pipeline: str | None, version: str) -> Iterator[str]:
    """What whoever uses the package must know."""
    if pipeline is None:
        yield (
            "The package has the typed tensor API only, without a pipeline: what is before and after the"
            " tensors is the app's."
        )
    if manifest.weights.random:
        yield "RANDOM weights: what this package says means nothing. It is for trying the app around it."
    if manifest.failed_checks:
        yield f"The artifact FAILED its checks ({', '.join(manifest.failed_checks)})."
    licence = manifest.model.source.licence
    if licence.startswith(COPYLEFT):
        yield (
            f"The model's licence is {licence}: it asks for the source of the app that it is in, unless its"
            " makers give you another licence."
        )
    built = manifest.versions["executorch"]
    if _version(version)[0] != _version(built)[0] or _version(version)[1] > _version(built)[1] + 1:
        yield (
            f"ExecuTorch promises that a program of {built} loads with its next minor or major release;"
            f" {version} may be further on."
        )


@dataclass(frozen=True)
class _Extra:
    """A file made from the project: its place, and what writes it there from the request and the
    project's folder.
    """

    path: Path
    write: Callable[[Request, Path, Path], None]


def _extras(
    out: Path, writer: ModuleType, zipped: bool, classes: str | Path | None, force: bool
) -> Sequence[_Extra]:
    """The files to make from the project.

    Raises UsageError and ArtifactError for those that cannot be made.
    """
    from edgeexport.ship.mobile.zipped import write_zip

    extras = []
    if zipped:
        extras.append(
            _Extra(
                out.with_name(f"{out.name}.zip"),
                lambda request, folder, path: write_zip(folder, path, out.name),
            )
        )
    if classes is not None:
        if not hasattr(writer, "write_compiled"):
            raise UsageError("--classes is for a platform with a file of compiled classes: android.")
        if not Path(classes).is_file():
            raise UsageError(f"There is no jar of compiled classes at {classes}.")
        extras.append(
            _Extra(
                out.with_name(f"{out.name}{writer.SUFFIX}"),
                lambda request, folder, path: writer.write_compiled(request, folder, Path(classes), path),
            )
        )
    for extra in extras:
        if extra.path.exists() and not (force and extra.path.is_file()):
            raise ArtifactError(
                f"{extra.path} exists already. Give --force to replace it, or choose another --out."
            )
    return extras


def _write_record(request: Request, platform: str, folder: Path) -> None:
    """RECORD: nothing in it depends on when or where it was written."""
    manifest = request.manifest
    facts = {
        "format": 1,
        "platform": platform,
        "app_id": request.app_id,
        "pipeline": request.pipeline,
        "runtime_version": request.runtime_version,
        "on_demand": request.on_demand,
        "model": manifest.model.name,
        "program": manifest.program,
        "program_sha256": request.program_sha256,
        "weights_sha256": manifest.weights.sha256,
        "edgeexport": manifest.versions["edgeexport"],
        "executorch": manifest.versions["executorch"],
        "files": {
            str(file.relative_to(folder)): asdict(record(file))
            for file in sorted(folder.rglob("*"))
            if file.is_file()
        },
    }
    (folder / RECORD).write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")


def damaged(folder: Path) -> list[str]:
    """The files of a package that are missing, or not as they were written."""
    files = json.loads((folder / RECORD).read_text(encoding="utf-8"))["files"]
    return [
        name
        for name, facts in files.items()
        if not (folder / name).is_file() or asdict(record(folder / name)) != facts
    ]
