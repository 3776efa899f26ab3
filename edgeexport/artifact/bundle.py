"""Artifacts of one model → one `.pt2` archive: ExportedPrograms, server models, `.pte`,
manifests and eager's answers in one file.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Sequence
from pathlib import Path

from edgeexport.artifact import archive
from edgeexport.artifact.folder import Artifact, open_artifact, open_artifacts, same_model
from edgeexport.errors import ArtifactError, UsageError, foreign_errors

SUFFIX = ".pt2"


def bundle(paths: Sequence[str | Path], out: str | Path | None = None, force: bool = False) -> Path:
    """Write the artifacts at `paths` (folders, or archives) into one archive; returns its path.

    `out` is by default beside the first, named after the model.

    The file is moved into place when every artifact was read back from it, byte for byte. Raises
    UsageError for artifacts that do not belong together or whose checks failed, ArtifactError for
    what is none, is damaged, or may not be written.
    """
    artifacts = _together([artifact for path in paths for artifact in open_artifacts(path)])
    first = artifacts[0]
    out = Path(out) if out is not None else Path(paths[0]).parent / f"{first.manifest.model.name}{SUFFIX}"
    _refuse(out, force)
    with foreign_errors(str(out)), contextlib.ExitStack() as stack:
        out.parent.mkdir(parents=True, exist_ok=True)
        folder = Path(
            stack.enter_context(tempfile.TemporaryDirectory(prefix=f".{out.name}.partial-", dir=out.parent))
        )
        partial = folder / out.name
        archive.pack({a.side: a.path for a in artifacts}, partial)
        for artifact in artifacts:
            open_artifact(partial / artifact.side)
        partial.replace(out)
    return out


def _together(artifacts: list[Artifact]) -> list[Artifact]:
    if not artifacts:
        raise UsageError("Give at least one artifact.")
    same_model(artifacts)
    sides = [a.side for a in artifacts]
    for artifact in artifacts:
        if sides.count(artifact.side) > 1:
            raise UsageError(
                f"Two of the artifacts are {artifact.side}:"
                f" {', '.join(a.name for a in artifacts if a.side == artifact.side)}. An archive takes one of"
                " each."
            )
        failed = [f.check for f in artifact.manifest.findings if not f.passed]
        if failed:
            raise UsageError(
                f"{artifact.name} failed its checks ({', '.join(dict.fromkeys(failed))}), so it is not"
                " bundled."
            )
    return artifacts


def _refuse(out: Path, force: bool) -> None:
    """Raise before any work when `out` may not be written."""
    if out.suffix != SUFFIX:
        raise UsageError(f"{out} must end in {SUFFIX}: PyTorch reads no archive with another name.")
    if not out.exists() and not out.is_symlink():
        return
    if not force:
        raise ArtifactError(f"{out} exists already. Give --force to replace it, or choose another --out.")
    if not out.is_file():
        raise ArtifactError(f"{out} is not a file, so --force does not replace it. Choose another --out.")
    archive.folders_of(out)  # another file is not ours to replace
