"""What a `.pt2` package says about itself, read from the archive without loading it."""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

from edgeexport.errors import RuntimeFault

WIDE = re.compile(r"%zmm\d|%[xy]mm(1[6-9]|2\d|3[01])\b|%k[0-7]\b")
"""Registers that instructions of AVX-512 alone can name, as objdump writes them."""


@dataclass(frozen=True)
class LibraryFacts:
    """One compiled method: its instructions, and how many of them need AVX-512."""

    method: str
    instructions: int
    wide_instructions: int


def weight_bytes(path: Path) -> int:
    """Bytes of all weights in the package."""
    with zipfile.ZipFile(path) as archive:
        return sum(m.file_size for m in archive.infolist() if "/data/weights/" in m.filename)


def read_libraries(path: Path) -> tuple[LibraryFacts, ...]:
    """Disassembles every method's library. Raises RuntimeFault where there is no objdump."""
    if shutil.which("objdump") is None:
        raise RuntimeFault(
            "objdump is not there to read the package with. Install it (Debian: apt install binutils)."
        )
    with zipfile.ZipFile(path) as archive, tempfile.TemporaryDirectory() as folder:
        libraries = [m for m in archive.namelist() if "/data/aotinductor/" in m and m.endswith(".so")]
        return tuple(
            _facts(Path(archive.extract(m, folder)), m.split("/data/aotinductor/")[1].split("/")[0])
            for m in libraries
        )


def _facts(library: Path, method: str) -> LibraryFacts:
    listing = subprocess.run(
        ["objdump", "-d", "--no-show-raw-insn", str(library)], capture_output=True, text=True, check=True
    ).stdout
    instructions = [line for line in listing.splitlines() if line.startswith(" ")]
    return LibraryFacts(
        method, len(instructions), sum(WIDE.search(line) is not None for line in instructions)
    )
