"""What one version of a delivery, a package or an artifact needs of another: the bytes to download
for who has the old one.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edgeexport.artifact.folder import Artifact, open_artifact
from edgeexport.artifact.manifest import to_json
from edgeexport.artifact.pte import read_weights
from edgeexport.artifact.targets import is_pte
from edgeexport.errors import ArtifactError, UsageError
from edgeexport.ship import delivery
from edgeexport.ship.mobile import RECORD, damaged

WEIGHTS = (".pte", ".ptd")
"""Files that hold weights."""


@dataclass(frozen=True)
class FileDelta:
    """A file of the new version.

    `download_bytes` is 0 where the old one has it, under whatever name.

    `known_bytes` of a file with weights that is to be downloaded are those of weights that the old
    version has already, in any file.
    """

    name: str
    size_bytes: int
    download_bytes: int
    known_bytes: int


@dataclass(frozen=True)
class Delta:
    """From `old` to `new`; `gone` are files of the old version whose content the new one has
    nowhere.
    """

    old: str
    new: str
    files: tuple[FileDelta, ...]
    gone: tuple[str, ...]

    @property
    def size_bytes(self) -> int:
        return sum(file.size_bytes for file in self.files)

    @property
    def download_bytes(self) -> int:
        return sum(file.download_bytes for file in self.files)

    @property
    def known_bytes(self) -> int:
        return sum(file.known_bytes for file in self.files)


@dataclass(frozen=True)
class _Version:
    """A folder of a known kind with the files that an app has of it, as its record says; one of an
    archive is there as long as its `artifact`.
    """

    kind: str
    folder: Path
    files: Mapping[str, Mapping[str, Any]]
    artifact: Artifact | None = None

    def weights(self) -> dict[str, int]:
        """Bytes of each weight by its sha256."""
        found: dict[str, int] = {}
        for name in self.files:
            if Path(name).suffix in WEIGHTS:
                found |= read_weights(self.folder / name)
        return found


def delta(old: str | Path, new: str | Path) -> Delta:
    """What who has `old` downloads for `new`: two deliveries, two packages for one platform, or two
    artifacts.

    Raises UsageError for two of different kinds, ArtifactError for what is neither, or is damaged.
    """
    before, after = _version(Path(old)), _version(Path(new))
    if before.kind != after.kind:
        raise UsageError(f"{old} is {before.kind} and {new} is {after.kind}: give two of one kind.")
    had = {facts["sha256"] for facts in before.files.values()}
    has = {facts["sha256"] for facts in after.files.values()}
    weights = before.weights()
    files = tuple(_file(after, name, had, weights) for name in sorted(after.files))
    return Delta(
        str(old),
        str(new),
        files,
        tuple(sorted(name for name, facts in before.files.items() if facts["sha256"] not in has)),
    )


def _file(version: _Version, name: str, had: set[str], weights: Mapping[str, int]) -> FileDelta:
    facts = version.files[name]
    if facts["sha256"] in had:
        return FileDelta(name, facts["size_bytes"], 0, 0)
    mine = read_weights(version.folder / name) if Path(name).suffix in WEIGHTS else {}
    return FileDelta(
        name,
        facts["size_bytes"],
        facts["size_bytes"],
        sum(size for sha256, size in mine.items() if sha256 in weights),
    )


def _version(folder: Path) -> _Version:
    """What is at `folder`, verified. Raises ArtifactError."""
    if (folder / delivery.MANIFEST).is_file():
        return _Version("a delivery", folder, delivery.open_delivery(folder).contents["files"])
    if (folder / RECORD).is_file():
        return _package(folder)
    artifact = open_artifact(folder, is_pte)
    return _Version("an artifact", artifact.path, to_json(artifact.manifest.files), artifact)


def _package(folder: Path) -> _Version:
    """A package, without the golden record of its tests: no app has that."""
    try:
        facts = json.loads((folder / RECORD).read_text(encoding="utf-8"))
        platform, files = facts["platform"], facts["files"]
        changed = damaged(folder)
    except (KeyError, TypeError, ValueError) as error:
        raise ArtifactError(
            f"{folder / RECORD} is damaged ({type(error).__name__}: {error}). Package the artifact again."
        ) from error
    if changed:
        raise ArtifactError(
            f"{folder} is not as it was written: {', '.join(changed[:5])}. A delta is told of whole packages:"
            " package the artifact again."
        )
    tests = importlib.import_module(f"edgeexport.ship.mobile.platforms.{platform}").GOLDEN
    return _Version(
        f"a package for {platform}",
        folder,
        {name: file for name, file in files.items() if tests not in Path(name).parents},
    )
