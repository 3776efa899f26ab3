"""Several folders of files in one `.pt2` archive, which gives them back byte for byte.

What a folder's own `.pt2` files hold (ExportedPrograms, models of AOTInductor, their weights)
become records of the archive itself, and a `.pte` lies in the format's folder for ExecuTorch, so
that plain PyTorch and its C++ loader find them there. PyTorch's writer is deterministic: the same
records under the same root are the same file again.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import jsonschema.exceptions

from edgeexport.errors import ArtifactError, UsageError

INDEX = "extra/edgeexport/index.json"
"""The records that each file of each folder is made of."""

SCHEMA: dict[str, Any] = {
    "type": "object",
    "required": ["format", "folders"],
    "properties": {
        "format": {"const": 1},
        "folders": {
            "type": "object",
            "minProperties": 1,
            "propertyNames": {"$ref": "#/$defs/name"},
            "additionalProperties": {
                "type": "object",
                "propertyNames": {"$ref": "#/$defs/name"},
                "additionalProperties": {
                    "oneOf": [
                        {
                            "type": "object",
                            "required": ["record"],
                            "properties": {"record": {"type": "string"}},
                        },
                        {
                            "type": "object",
                            "required": ["root", "records"],
                            "properties": {
                                "root": {"$ref": "#/$defs/name"},
                                "records": {"type": "array", "items": {"type": "string"}},
                            },
                        },
                    ]
                },
            },
        },
    },
    "$defs": {"name": {"type": "string", "pattern": r"^[A-Za-z0-9_][A-Za-z0-9._+-]*$"}},
}
"""Names are plain: they become files."""

WRITERS_OWN = {"archive_format", "archive_version", "byteorder", ".data/version", ".data/serialization_id"}
"""Records that PyTorch's writer adds by itself."""

UNNAMED = "archive"
"""The root of an archive that was written to a stream; one that was written to a path has its name.
"""


def pack(folders: Mapping[str, Path], path: Path) -> None:
    """Write every file of `folders` to `path`; what is in several is stored once.

    Raises UsageError where they have different records of one name.
    """
    from torch.export.pt2_archive._package import PT2ArchiveWriter

    index: dict[str, dict] = {}
    written: dict[str, str] = {}
    files: dict[str, str] = {}
    with open(path, "wb") as stream, PT2ArchiveWriter(stream) as archive:

        def write(record: str, content: bytes, digest: str) -> None:
            if record not in written:
                archive.write_bytes(record, content)
            elif written[record] != digest:
                raise UsageError(
                    f"Two artifacts have a '{record}', with different content: one archive takes one server"
                    " artifact."
                )
            written[record] = digest

        for name, folder in folders.items():
            index[name] = {}
            for file in sorted(folder.iterdir()):
                if file.suffix == ".pt2":
                    with zipfile.ZipFile(file) as inner:
                        root = _root(inner)
                        records = [r for r in _records(inner) if r not in WRITERS_OWN]
                        for record in records:
                            content = inner.read(f"{root}/{record}")
                            write(record, content, _sha256(content))
                    index[name][file.name] = {"root": root, "records": records}
                else:
                    content = file.read_bytes()
                    digest = _sha256(content)
                    record = files.setdefault(digest, _home(name, file))
                    write(record, content, digest)
                    index[name][file.name] = {"record": record}
        archive.write_string(INDEX, json.dumps({"format": 1, "folders": index}))


def folders_of(path: Path) -> dict[str, tuple[str, ...]]:
    """The folders in an archive, in the order in which they were packed, and their files.

    Raises ArtifactError.
    """
    with _opened(path) as (_, index):
        return {name: tuple(files) for name, files in index.items()}


def read_file(path: Path, name: str, file: str) -> bytes:
    """One file of the folder `name`, which is a record as it is.

    Raises ArtifactError where it is not there.
    """
    with _opened(path) as (read, index):
        made_of = index[name].get(file, {})
        if "record" not in made_of:
            raise ArtifactError(f"{path}/{name} has no {file}. Bundle it again.")
        return read(made_of["record"])


def unpack(path: Path, name: str, folder: Path) -> None:
    """Write the files of the folder `name` of an archive into `folder`.

    Raises ArtifactError for a record that is missing or damaged.
    """
    with _opened(path) as (read, index):
        for file, made_of in index[name].items():
            if "record" in made_of:
                (folder / file).write_bytes(read(made_of["record"]))
            else:
                _write_archive(folder / file, made_of, read)


def _write_archive(path: Path, made_of: Mapping[str, Any], read: Callable[[str], bytes]) -> None:
    from torch.export.pt2_archive._package import PT2ArchiveWriter

    with contextlib.ExitStack() as stack:
        target = stack.enter_context(open(path, "wb")) if made_of["root"] == UNNAMED else str(path)
        archive = stack.enter_context(PT2ArchiveWriter(target))
        for record in made_of["records"]:
            archive.write_bytes(record, read(record))


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[tuple[Callable[[str], bytes], dict[str, dict]]]:
    """A function that reads a record, and the index. Reading compares the record's checksum."""
    with contextlib.ExitStack() as stack:
        with _damage(path):
            archive = stack.enter_context(zipfile.ZipFile(path))
            root, records = _root(archive), _records(archive)

        def read(record: str) -> bytes:
            with _damage(path):
                return archive.read(f"{root}/{record}")

        if INDEX not in records:
            raise ArtifactError(
                f"{path} is not an archive that `edgeexport bundle` wrote: it has no {INDEX}. Give that, or"
                " an artifact's folder."
            )
        with _damage(path):
            index = json.loads(read(INDEX))
        error = jsonschema.exceptions.best_match(jsonschema.Draft202012Validator(SCHEMA).iter_errors(index))
        if error is not None:
            raise ArtifactError(
                f"{path} has an index that this version does not read: {error.message[:200]}."
            )
        yield read, index["folders"]


@contextlib.contextmanager
def _damage(path: Path) -> Iterator[None]:
    """What zipfile and json raise for damaged or hostile bytes, as ArtifactError."""
    try:
        yield
    except (
        zipfile.BadZipFile,
        zlib.error,
        struct.error,
        KeyError,
        EOFError,
        ValueError,
        OverflowError,
        MemoryError,
        RuntimeError,
    ) as error:
        raise ArtifactError(
            f"{path} is damaged, or no archive ({str(error).strip(chr(34))[:200]}). Copy it again, or bundle"
            " again."
        ) from error


def _root(archive: zipfile.ZipFile) -> str:
    """The folder that all records are in. Raises BadZipFile."""
    names = archive.namelist()
    if not names:
        raise zipfile.BadZipFile("it is empty")
    return names[0].partition("/")[0]


def _records(archive: zipfile.ZipFile) -> list[str]:
    root = _root(archive) + "/"
    return [name.removeprefix(root) for name in archive.namelist()]


def _home(name: str, file: Path) -> str:
    """The record that a plain file becomes.

    PyTorch reads all of `extra/` as text, so of ours only the manifest is there.
    """
    if file.suffix == ".pte":
        return f"data/executorch/{name}.pte"
    return f"{'extra' if file.name == 'manifest.json' else 'data'}/edgeexport/{name}/{file.name}"


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
