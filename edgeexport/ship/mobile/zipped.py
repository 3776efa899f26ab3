"""Folders as zip files that are the same for the same content, on every machine and day."""

from __future__ import annotations

import shutil
import zipfile
from collections.abc import Mapping
from pathlib import Path

from edgeexport.errors import ArtifactError

STORED = {".pte", ".bin", ".jar"}
"""Weights and tensors hardly become smaller, and are stored as they are."""

_FIRST_DAY = (1980, 1, 1, 0, 0, 0)


def write_zip(folder: Path, path: Path, top: str) -> None:
    """All files of `folder` in a new zip at `path`, under the folder `top` in it."""
    files = [file for file in folder.rglob("*") if file.is_file()]
    write_files({f"{top}/{file.relative_to(folder).as_posix()}": file for file in files}, path)


def write_files(files: Mapping[str, Path], path: Path) -> None:
    """Files under their names in a new zip at `path`, in the order of names; it is read back.

    Raises ArtifactError when it is not whole.
    """
    with zipfile.ZipFile(path, "w") as archive:
        for name, file in sorted(files.items()):
            entry = zipfile.ZipInfo(name, _FIRST_DAY)
            entry.compress_type = zipfile.ZIP_STORED if file.suffix in STORED else zipfile.ZIP_DEFLATED
            entry.external_attr = 0o100644 << 16
            entry.file_size = file.stat().st_size  # tells zipfile when a file needs the 64-bit form
            with file.open("rb") as source, archive.open(entry, "w") as target:
                shutil.copyfileobj(source, target, 1 << 20)
    with zipfile.ZipFile(path) as archive:
        wrong = archive.testzip()
    if wrong is not None:
        raise ArtifactError(
            f"{path.name} was not written whole: {wrong} does not read back. Is the disk sound?"
        )
