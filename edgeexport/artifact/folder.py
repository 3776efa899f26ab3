"""The artifact folder: program, manifest, golden answers; written whole or not at all, verified on
opening.
"""

from __future__ import annotations

import contextlib
import dataclasses
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from edgeexport.artifact import archive as archive_format
from edgeexport.artifact.manifest import FileRecord, Manifest, MethodEntry
from edgeexport.artifact.targets import Target, target
from edgeexport.errors import ArtifactError, UnknownName, UsageError, foreign_errors

MANIFEST = "manifest.json"
GOLDEN = "golden.safetensors"
EXPECTED = "expected.safetensors"
PROGRAMS = "programs.pt2"
"""The captured ExportedPrograms, in a server artifact."""
SOURCES = "sources.json"
"""Where each operator of a `.pte` comes from in the model's code; artifacts of earlier versions
have none.
"""


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
    manifest: Manifest
    name: str
    unpacked: tempfile.TemporaryDirectory | None = None
    apart: tuple[Path, ...] = ()

    @property
    def side(self) -> str:
        """Target and precision, as folders and archives name it."""
        return f"{self.manifest.target}-{self.manifest.precision}"

    @property
    def target(self) -> Target:
        """What it was built for."""
        return target(self.manifest.target)

    @property
    def program_path(self) -> Path:
        """The program file."""
        return self.apart[0] if self.apart else self.path / self.manifest.program

    @property
    def data_paths(self) -> tuple[Path, ...]:
        """The data files that are loaded with it."""
        return self.apart[1:]

    @cached_property
    def methods(self) -> dict[str, MethodEntry]:
        """The manifest's entry of each method, by name."""
        return {m.name: m for m in self.manifest.methods}

    def golden(self) -> dict:
        """What eager answered: tensors by `method/case/output`."""
        from safetensors.torch import load_file

        return load_file(self.path / GOLDEN)

    def expected(self) -> dict:
        """What the program is to answer: what its own graph says, run by PyTorch, where it was
        quantized; else what eager answered.
        """
        from safetensors.torch import load_file

        return load_file(self.path / EXPECTED) if EXPECTED in self.manifest.files else self.golden()

    def tokenizer(self):
        """The tokenizer that the model's app needs (`prepare.tokenizer`), or None where the
        artifact was built without one.
        """
        path = self.path / self.manifest.prepare["tokenizer"]
        if path.name not in self.manifest.files:
            return None
        from tokenizers import Tokenizer

        return Tokenizer.from_file(str(path))

    @property
    def text_note(self) -> str | None:
        """What to know about text that this artifact says: that its weights are random, or that
        there is no tokenizer for it.
        """
        if self.manifest.weights.random:
            return "RANDOM weights: the tokens mean nothing"
        if self.manifest.prepare["tokenizer"] not in self.manifest.files:
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


def _target_of(manifest: Manifest, name: str) -> Target:
    """Raises ArtifactError for a target that is not known here."""
    try:
        return target(manifest.target)
    except UnknownName as error:
        raise ArtifactError(
            f"{name} is for the target '{manifest.target}', which this version of edgeexport does not know."
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
    for needed in (manifest.program, GOLDEN):
        if needed not in manifest.files:
            raise ArtifactError(
                f"{where} records no hash of {needed}, so it cannot be trusted. Build the artifact again."
            )
    for file_name, recorded in manifest.files.items():
        _verify(path / file_name, f"{name}/{file_name}", recorded)
    return Artifact(path, manifest, name)


def _parsed(content: bytes, where: str) -> Manifest:
    """Raises ArtifactError."""
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ArtifactError(f"{where} is damaged ({error}). Build the artifact again.") from error
    return Manifest.parse(text, where)


def same_model(artifacts: Iterable[Artifact]) -> None:
    """Raise UsageError unless all are of one model and the same weights."""
    first, *others = artifacts
    for other in others:
        for what, said in (("model", lambda m: m.model.name), ("weights", lambda m: m.weights.sha256)):
            ours, theirs = (said(each.manifest) for each in (first, other))
            if ours != theirs:
                raise UsageError(
                    f"{first.name} and {other.name} are not of the same {what}: {ours[:24]} and"
                    f" {theirs[:24]}."
                )


def _verify(file: Path, where: str, recorded: FileRecord) -> None:
    if not file.is_file():
        raise ArtifactError(f"{where} is missing from the artifact. Copy it again, or build it again.")
    found = record(file)
    if found.size_bytes != recorded.size_bytes:
        raise ArtifactError(
            f"{where} has {found.size_bytes} bytes, the manifest says {recorded.size_bytes}: "
            "it was cut short or changed. Copy it again, or build it again."
        )
    if found.sha256 != recorded.sha256:
        raise ArtifactError(
            f"{where} was changed after it was built (sha256 {found.sha256[:12]}..., the manifest says"
            f" {recorded.sha256[:12]}...). It is not loaded. Copy it again, or build it again."
        )


def record(path: Path) -> FileRecord:
    """Size and sha256 of a file, as the manifest keeps them."""
    import hashlib

    with open(path, "rb") as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
    return FileRecord(path.stat().st_size, digest)


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Validate and write the manifest of a staged artifact."""
    (folder / MANIFEST).write_text(manifest.text(folder / MANIFEST), encoding="utf-8")


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
