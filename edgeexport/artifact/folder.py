"""The artifact folder: program, manifest, golden answers; written whole or not at all, verified on
opening.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from importlib import resources
from pathlib import Path
from typing import Any

from edgeexport.artifact import archive as archive_format
from edgeexport.artifact.targets import Target, target
from edgeexport.errors import ArtifactError, UnknownName, UsageError, foreign_errors
from edgeexport.method import Dim, Input
from edgeexport.samplers import sampler_from_json, sampler_to_json

MANIFEST = "manifest.json"
GOLDEN = "golden.safetensors"
PROGRAMS = "programs.pt2"
"""The captured ExportedPrograms, in a server artifact."""
SOURCES = "sources.json"
"""Where each operator of a `.pte` comes from in the model's code; artifacts of earlier versions
have none.
"""

FORMAT = 1


@dataclass(frozen=True)
class Kind:
    """What is written as a folder: what messages call it, and the file in it that tells that it is
    one.
    """

    name: str
    mark: str


ARTIFACT = Kind("an artifact", MANIFEST)


@dataclass(frozen=True)
class Artifact:
    """An opened artifact: its folder and its manifest, whose files were found to have the recorded
    hashes.

    `name` is what messages call it. One of an archive is in a temporary folder, `unpacked`, which
    goes away with it. `apart` is a program that is looked at in place of the folder's, and the data
    files (`.ptd`) that its weights are in.
    """

    path: Path
    manifest: dict[str, Any]
    name: str
    unpacked: tempfile.TemporaryDirectory | None = None
    apart: tuple[Path, ...] = ()

    @property
    def side(self) -> str:
        """Target and precision, as folders and archives name it."""
        return "{target}-{precision}".format(**self.manifest)

    @property
    def target(self) -> Target:
        """What it was built for."""
        return target(self.manifest["target"])

    @property
    def program_path(self) -> Path:
        """The program file."""
        return self.apart[0] if self.apart else self.path / self.manifest["program"]

    @property
    def data_paths(self) -> tuple[Path, ...]:
        """The data files that are loaded with it."""
        return self.apart[1:]

    @cached_property
    def methods(self) -> dict[str, dict[str, Any]]:
        """The manifest's entry of each method, by name."""
        return {m["name"]: m for m in self.manifest["methods"]}

    def golden(self) -> dict:
        """What eager answered: tensors by `method/case/output`."""
        from safetensors.torch import load_file

        return load_file(self.path / GOLDEN)

    def tokenizer(self):
        """The tokenizer that the model's app needs (`prepare.tokenizer`), or None where the
        artifact was built without one.
        """
        path = self.path / self.manifest["prepare"]["tokenizer"]
        if path.name not in self.manifest["files"]:
            return None
        from tokenizers import Tokenizer

        return Tokenizer.from_file(str(path))

    @property
    def text_note(self) -> str | None:
        """What to know about text that this artifact says: that its weights are random, or that
        there is no tokenizer for it.
        """
        if self.manifest["weights"]["source"] == "random":
            return "RANDOM weights: the tokens mean nothing"
        if self.manifest["prepare"]["tokenizer"] not in self.manifest["files"]:
            return (
                "the artifact has no tokenizer: token ids instead of text (put tokenizer.json beside the"
                " checkpoint and build again)"
            )
        return None


def open_artifact(path: str | Path, suits: Callable[[Target], bool] = lambda target: True) -> Artifact:
    """Read and verify an artifact: a folder, or ARCHIVE/NAME for one of those that `edgeexport
    bundle` wrote into a file.

    For the archive alone it is the first whose target `suits`, or the first. Raises ArtifactError
    when it is no artifact, is damaged, or has a changed byte: the runtime can crash on a damaged
    program, so nothing is loaded before every hash is right.
    """
    archive, name = _in_archive(Path(path))
    if archive is None:
        return _read(Path(path), str(path))
    folders = list(archive_format.folders_of(archive))
    if name and name not in folders:
        raise ArtifactError(f"{archive} has no artifact '{name}'. It has: {', '.join(folders)}.")
    return _unpacked(archive, name or next((f for f in folders if suits(_target_in(archive, f))), folders[0]))


def open_artifacts(path: str | Path) -> Iterator[Artifact]:
    """All artifacts at a path: one, or those of an archive, each opened when it is asked for.

    Raises ArtifactError.
    """
    archive, name = _in_archive(Path(path))
    if archive is None or name:
        yield open_artifact(path)
    else:
        yield from (_unpacked(archive, name) for name in archive_format.folders_of(archive))


def _in_archive(path: Path) -> tuple[Path | None, str]:
    """The archive that a path leads into, if it does, and the name in it."""
    if path.is_file():
        return path, ""
    return (path.parent, path.name) if path.parent.is_file() else (None, "")


def _target_in(archive: Path, name: str) -> Target:
    """The target of one of an archive's artifacts, before that is unpacked."""
    content = archive_format.read_file(archive, name, MANIFEST)
    return _target_of(_parsed(content, f"{archive}/{name}/{MANIFEST}"), f"{archive}/{name}")


def _target_of(manifest: dict, name: str) -> Target:
    """Raises ArtifactError for a target that is not known here."""
    try:
        return target(manifest["target"])
    except UnknownName as error:
        raise ArtifactError(
            f"{name} is for the target '{manifest['target']}', which this version of edgeexport does not know."
        ) from error


def _unpacked(archive: Path, name: str) -> Artifact:
    home = tempfile.TemporaryDirectory(prefix="edgeexport-")
    try:
        archive_format.unpack(archive, name, Path(home.name))
    except OSError as error:
        raise ArtifactError(
            f"{archive} cannot be unpacked into {home.name} ({error.strerror}). Set TMPDIR to a folder with"
            " more room."
        ) from error
    return dataclasses.replace(_read(Path(home.name), f"{archive}/{name}"), unpacked=home)


def _read(path: Path, name: str) -> Artifact:
    file = path / MANIFEST
    if not file.is_file():
        raise ArtifactError(
            f"{name} is not an artifact: it has no {MANIFEST}. Give the folder that `edgeexport build` wrote,"
            " or the file of `edgeexport bundle`."
        )
    where = f"{name}/{MANIFEST}"
    manifest = _parsed(file.read_bytes(), where)
    _target_of(manifest, name)
    for needed in (manifest["program"], GOLDEN):
        if needed not in manifest["files"]:
            raise ArtifactError(
                f"{where} records no hash of {needed}, so it cannot be trusted. Build the artifact again."
            )
    for file_name, recorded in manifest["files"].items():
        _verify(path / file_name, f"{name}/{file_name}", recorded)
    return Artifact(path, manifest, name)


def _parsed(content: bytes, where: str) -> dict:
    """A manifest that the schema allows. Raises ArtifactError."""
    try:
        manifest = json.loads(content.decode("utf-8"))
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise ArtifactError(f"{where} is damaged ({error}). Build the artifact again.") from error
    validate_manifest(manifest, where)
    return manifest


def same_model(artifacts: Iterable[Artifact]) -> None:
    """Raise UsageError unless all are of one model and the same weights."""
    first, *others = artifacts
    for other in others:
        for what, place in (("model", ("model", "name")), ("weights", ("weights", "sha256"))):
            ours, theirs = (a.manifest[place[0]][place[1]] for a in (first, other))
            if ours != theirs:
                raise UsageError(
                    f"{first.name} and {other.name} are not of the same {what}: {str(ours)[:24]} and"
                    f" {str(theirs)[:24]}."
                )


def validate_manifest(manifest: Any, where: Path | str) -> None:
    """Hold a manifest against the JSON Schema in this package.

    Raises ArtifactError with the place that is wrong.
    """
    import jsonschema

    schema = json.loads(
        resources.files("edgeexport.artifact")
        .joinpath("schemas/manifest.schema.json")
        .read_text(encoding="utf-8")
    )
    error = jsonschema.exceptions.best_match(jsonschema.Draft202012Validator(schema).iter_errors(manifest))
    if error is not None:
        place = "/".join(map(str, error.absolute_path)) or "the top"
        raise ArtifactError(
            f"{where} is not a manifest that this version reads: at {place}: {error.message[:200]}."
        )


def _verify(file: Path, where: str, recorded: dict) -> None:
    if not file.is_file():
        raise ArtifactError(f"{where} is missing from the artifact. Copy it again, or build it again.")
    found = record(file)
    if found["size_bytes"] != recorded["size_bytes"]:
        raise ArtifactError(
            f"{where} has {found['size_bytes']} bytes, the manifest says {recorded['size_bytes']}: "
            "it was cut short or changed. Copy it again, or build it again."
        )
    if found["sha256"] != recorded["sha256"]:
        raise ArtifactError(
            f"{where} was changed after it was built (sha256 {found['sha256'][:12]}..., the manifest says"
            f" {recorded['sha256'][:12]}...). It is not loaded. Copy it again, or build it again."
        )


def record(path: Path) -> dict:
    """Size and sha256 of a file, as the manifest keeps them."""
    import hashlib

    with open(path, "rb") as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
    return {"size_bytes": path.stat().st_size, "sha256": digest}


def write_manifest(folder: Path, manifest: dict) -> None:
    """Validate and write the manifest of a staged artifact."""
    text = json.dumps(manifest, indent=2) + "\n"
    validate_manifest(json.loads(text), folder / MANIFEST)
    (folder / MANIFEST).write_text(text, encoding="utf-8")


@contextlib.contextmanager
def staged(out: Path, force: bool, kind: Kind = ARTIFACT) -> Iterator[Staging]:
    """A temporary folder beside `out`; `publish` moves it into place, anything else removes it.

    Raises ArtifactError before any work when `out` exists (and `force` was not given, or it is not
    of the `kind` that is written), or cannot be written.
    """
    refuse_existing(out, force, kind)
    with foreign_errors(str(out)):
        out.parent.mkdir(parents=True, exist_ok=True)
        folder = Path(tempfile.mkdtemp(prefix=f".{out.name}.partial-", dir=out.parent))
        folder.chmod(0o755)
    try:
        with foreign_errors(str(out)):
            yield Staging(folder, out, force, kind)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def refuse_existing(out: Path, force: bool, kind: Kind = ARTIFACT) -> None:
    """Raise ArtifactError when `out` may not be written."""
    if not out.exists() and not out.is_symlink():
        return
    if not force:
        raise ArtifactError(f"{out} exists already. Give --force to replace it, or choose another --out.")
    if not out.is_dir() or (any(out.iterdir()) and not (out / kind.mark).is_file()):
        raise ArtifactError(
            f"{out} is not {kind.name}, so --force does not replace it. Choose another --out."
        )


@dataclass(frozen=True)
class Staging:
    """A folder that is being filled, and where it will go."""

    folder: Path
    out: Path
    force: bool
    kind: Kind

    def publish(self, suffix: str = "") -> Path:
        """Move the folder into place by rename, under `out` with `suffix`; what was there goes away
        last.
        """
        target = self.out.with_name(self.out.name + suffix)
        refuse_existing(target, self.force or bool(suffix), self.kind)
        old = None
        if target.exists():
            old = target.with_name(f".{target.name}.old-{self.folder.name[-8:]}")
            target.rename(old)
        self.folder.rename(target)
        if old is not None:
            shutil.rmtree(old)
        return target


def input_to_json(spec: Input) -> dict:
    """An input as manifest data; the layout of every tensor at the boundary is contiguous."""
    return {
        "name": spec.name,
        "dtype": spec.dtype,
        "shape": list(spec.shape),
        "layout": "contiguous",
        "meaning": spec.meaning,
        "unit": spec.unit,
        "range": list(spec.range) if spec.range else None,
        "first_of": spec.first_of,
        "sample": sampler_to_json(spec.sample),
    }


def input_from_json(data: dict) -> Input:
    """The input that `input_to_json` wrote."""
    return Input(
        data["name"],
        tuple(data["shape"]),
        data["dtype"],
        data["meaning"],
        data["unit"],
        tuple(data["range"]) if data["range"] else None,
        data["first_of"],
        sampler_from_json(data["sample"]),
    )


def dims_of(method: dict) -> dict[str, Dim]:
    """The dimensions of a method's manifest entry: as verified where they were, else as asked
    for.
    """
    bounds = {d["name"]: d["verified"] or d["asked"] for d in method["dims"]}
    return {name: Dim(name, *b) for name, b in bounds.items()}
