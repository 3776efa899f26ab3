"""The captured ExportedPrograms in one file, in PyTorch's archive format, with weights stored once
for all methods.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path

from torch.export import ExportedProgram
from torch.export.pt2_archive._package import PT2ArchiveWriter, _package_exported_programs, load_pt2
from torch.export.pt2_archive.constants import CONSTANTS_DIR, WEIGHTS_DIR

from edgeexport.artifact.program_state import with_examples
from edgeexport.errors import ArtifactError

PREFIX = "program_"
"""Of the records of weights: those of AOTInductor's models, which have the same names in PyTorch's
writer, can be beside them in one archive.
"""


def save_programs(programs: Mapping[str, ExportedProgram], path: Path) -> None:
    """Write `programs` to `path`, as `torch.export.pt2_archive.load_pt2` reads them; without
    example inputs, which can be larger than the weights.
    """
    # A stream, not a path: the writer names the archive's inner folder after a path, which here is
    # temporary.
    with open(path, "wb") as file, _WeightsOnce(file) as writer:
        _package_exported_programs(
            writer, {name: with_examples(program, None) for name, program in programs.items()}
        )


def load_programs(path: Path) -> dict[str, ExportedProgram]:
    """The programs that `save_programs` wrote. Raises ArtifactError."""
    try:
        with open(path, "rb") as file:
            return load_pt2(file).exported_programs
    except Exception as error:  # the archive's, the format's and the unpickler's errors alike
        raise ArtifactError(
            f"{path} holds no ExportedPrograms that this PyTorch reads ({type(error).__name__}:"
            f" {str(error)[:200]})."
        ) from error


class _WeightsOnce(PT2ArchiveWriter):
    """Writes each weight once.

    PyTorch does so within a program; the index of another program may name the same record.
    """

    def __init__(self, file):
        super().__init__(file)
        self._records: dict[str, str] = {}
        self._homes: dict[str, str] = {}
        self._asked: list[str] = []

    def write_bytes(self, name: str, data: bytes) -> None:
        if not name.startswith((WEIGHTS_DIR, CONSTANTS_DIR)) or name.endswith(".json"):
            super().write_bytes(name, data)
            return
        self._asked.append(name)
        folder, _, record = name.rpartition("/")
        digest = hashlib.sha256(folder.encode() + b"\0" + data).hexdigest()
        if digest not in self._records:
            self._records[digest] = PREFIX + record if name.startswith(WEIGHTS_DIR) else record
            super().write_bytes(f"{folder}/{self._records[digest]}", data)
        self._homes[record] = self._records[digest]

    def write_string(self, name: str, data: str) -> None:
        """An index of weights names the record that there is."""
        if name.endswith("_config.json"):
            index = json.loads(data)
            for entry in index["config"].values():
                entry["path_name"] = self._homes[entry["path_name"]]
            data = json.dumps(index)
        super().write_string(name, data)

    def count_prefix(self, prefix: str) -> int:
        """Records asked for: the next is numbered after it."""
        return sum(name.startswith(prefix) for name in self._asked)
