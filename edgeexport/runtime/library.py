"""Which names are in a runtime library: a shared library (ELF), or an archive of them (a wheel, an
.aar, a .jar, an .apk), without running it.

A runtime registers operators and backends by name, so each name is a string in it. A string is
found whole: it ends with a NUL, and begins after one, or where the library's code or a relocation
points to. Linkers put strings into each other's tails and behind data that ends without a NUL, so
neither rule alone would do: with the first, XnnpackBackend is missing in libraries that have it;
without any, `aten::add.out` would be found inside a longer name.
"""

from __future__ import annotations

import struct
import zipfile
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from edgeexport.errors import UsageError

MACHINES = {0x3E: "x86_64", 0xB7: "aarch64", 0x28: "arm", 0x03: "x86", 0xF3: "riscv"}
"""Architectures by the number that ELF has for them."""

PROGBITS, RELA, ALLOCATED, EXECUTABLE = 1, 4, 0x2, 0x4
ADRP, ADRP_MASK, ADD_IMMEDIATE, ADD_MASK = 0x90000000, 0x9F000000, 0x91000000, 0xFFC00000
REACH = 16
"""Instructions between an ADRP and the ADD that completes its address."""


@dataclass(frozen=True)
class Section:
    """A part of a library: where it lies when it is loaded, and its bytes."""

    address: int
    content: bytes
    executable: bool


class Library:
    """One shared library. Raises UsageError for a file that is none, or is damaged."""

    def __init__(self, name: str, content: bytes):
        self.name = name
        self.size_bytes = len(content)
        if content[:4] != b"\x7fELF" or content[5:6] != b"\x01":
            raise UsageError(
                f"{name} is no shared library that is read here: it is not in ELF's little-endian form"
                " (Linux, Android)."
            )
        self.machine = MACHINES.get(int.from_bytes(content[18:20], "little"), "another machine")
        try:
            self._sections, self._pointers = _sections(content)
        except (struct.error, ValueError, IndexError) as error:
            raise UsageError(f"{name} is damaged: its sections cannot be read ({error}).") from error

    def names(self, wanted: Iterable[str]) -> set[str]:
        """Those of `wanted` that are strings of this library."""
        return {
            name
            for name in wanted
            if any(self._is_string(address, whole) for address, whole in self._places(name.encode() + b"\0"))
        }

    def _places(self, text: bytes) -> Iterator[tuple[int, bool]]:
        """Where a text with its NUL is, and whether it follows one."""
        for section in self._sections:
            if section.executable:
                continue
            at = section.content.find(text)
            while at >= 0:
                yield section.address + at, at == 0 or section.content[at - 1] == 0
                at = section.content.find(text, at + 1)

    def _is_string(self, address: int, after_nul: bool) -> bool:
        return (
            after_nul
            or address in self._pointers
            or any(
                _refers(section, self.machine, address) for section in self._sections if section.executable
            )
        )


def _sections(content: bytes) -> tuple[list[Section], frozenset[int]]:
    """What is loaded, and the addresses that relocations write into it."""
    wide = content[4] == 2
    table, size, count = (
        (struct.unpack_from("<Q", content, 40)[0], *struct.unpack_from("<HH", content, 58))
        if wide
        else (struct.unpack_from("<I", content, 32)[0], *struct.unpack_from("<HH", content, 46))
    )
    if count == 0:
        raise ValueError("it has none")
    found, pointers = [], set()
    for index in range(count):
        _, kind, flags, address, offset, length = struct.unpack_from(
            "<IIQQQQ" if wide else "<IIIIII", content, table + index * size
        )
        if kind == PROGBITS and flags & ALLOCATED:
            if offset + length > len(content):
                raise ValueError("the file is cut short")
            found.append(Section(address, content[offset : offset + length], bool(flags & EXECUTABLE)))
        elif kind == RELA and wide:
            pointers |= set(np.frombuffer(content, "<u8", length // 24 * 3, offset)[2::3].tolist())
    return found, frozenset(pointers)


def _refers(section: Section, machine: str, address: int) -> bool:
    """Whether code builds `address`: relative to the instruction (x86-64), or as a page and an
    offset in it (aarch64). Elsewhere it is not known, and False.
    """
    if machine == "x86_64":
        return any(_refers_relative(section, phase, address) for phase in range(4))
    return machine == "aarch64" and _refers_paged(section, address)


def _refers_relative(section: Section, phase: int, address: int) -> bool:
    words = np.frombuffer(section.content, "<i4", max(len(section.content) - phase, 0) // 4, phase)
    after = section.address + phase + 4 * np.arange(1, len(words) + 1, dtype=np.int64)
    return bool((after + words == address).any())


def _refers_paged(section: Section, address: int) -> bool:
    code = np.frombuffer(section.content, "<u4", len(section.content) // 4).astype(np.int64)
    (starts,) = np.nonzero((code & ADRP_MASK) == ADRP)
    pages = (section.address + 4 * starts) >> 12
    distance = ((code[starts] >> 29) & 3) | (((code[starts] >> 5) & 0x7FFFF) << 2)
    distance -= (distance >> 20) << 21
    wanted = ADD_IMMEDIATE | ((address & 0xFFF) << 10)
    for start in starts[pages + distance == address >> 12]:
        follows = code[start + 1 : start + 1 + REACH]
        if (
            ((follows & ADD_MASK) | (follows & (0xFFF << 10)) == wanted)
            & (((follows >> 5) & 31) == (code[start] & 31))
        ).any():
            return True
    return False


def read_libraries(path: Path) -> dict[str, list[Library]]:
    """The libraries at `path`, one or an archive or folder of them, by architecture.

    Raises UsageError where there is none.
    """
    found: dict[str, list[Library]] = defaultdict(list)
    for name, content in _files(path):
        library = Library(name, content)
        found[library.machine].append(library)
    if not found:
        raise UsageError(f"{path} has no shared library (.so) in it.")
    return dict(found)


def _files(path: Path) -> Iterator[tuple[str, bytes]]:
    try:
        if path.is_dir():
            yield from ((str(file), file.read_bytes()) for file in sorted(path.rglob("*.so")))
        elif zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as archive:
                yield from (
                    (f"{path}/{name}", archive.read(name))
                    for name in sorted(archive.namelist())
                    if name.endswith(".so")
                )
        else:
            yield str(path), path.read_bytes()
    except (OSError, zipfile.BadZipFile) as error:
        raise UsageError(f"{path} cannot be read ({error}).") from error
