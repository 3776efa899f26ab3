"""How much machine code the kernels of operators are: what can be reached from them in the kernel
libraries of executorch's own package.

It is what a linker that drops functions nobody calls would keep of them, found in the linked
libraries, because the package has no archives to link anew: functions from the unwind tables, what
each calls or refers to from the disassembly, where each operator begins from the runtime's own
registry. Kernels are those of this package: x86-64, every dtype. Constants and tables beside the
code are not counted; functions that only pointers in memory lead to are, where the pointer lies in
a table that the code refers to.
"""

from __future__ import annotations

import ctypes
import json
import re
import subprocess
import sys
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path

from edgeexport.errors import RuntimeFault, UsageError
from edgeexport.runtime.runner import tool

CORE = ("libexecutorch.so", "libexecutorch_threadpool.so")
KERNELS = ("libexecutorch_kernels_optimized.so", "libexecutorch_kernels_quantized.so")
REGISTRY = "_ZN10executorch7runtime22get_registered_kernelsEv"
"""executorch::runtime::get_registered_kernels()"""

_FRAME = re.compile(r"FDE cie=\S+ pc=([0-9a-f]+)\.\.([0-9a-f]+)")
_DATA = re.compile(r"# ([0-9a-f]+)")
_CALLED = re.compile(r"\s([0-9a-f]+) <([^>]*)>")
_WORD_BYTES = 8


def kernel_code_bytes(operators: Iterable[str], folder: Path) -> dict[str, int]:
    """The code bytes of the kernels of `operators` by library of `folder`, of those that have any.

    Code that operators share counts once.

    Raises UsageError where there is no disassembler, or the libraries are not for x86-64, and
    RuntimeFault where a tool fails.
    """
    known = _registered(folder)
    found = {}
    for library, begins in known.items():
        wanted = [begin for name in set(operators) & begins.keys() for begin in begins[name]]
        if wanted:
            found[library] = _code(folder / library).reached_bytes(wanted)
    return found


@cache
def _code(path: Path) -> _Code:
    """Read once a process: disassembling takes seconds."""
    return _Code(path)


class _Code:
    """The functions of a library, and which leads to which."""

    def __init__(self, path: Path):
        self._path = path
        frames = (_FRAME.search(line) for line in self._lines("readelf", "--debug-dump=frames"))
        self._functions = sorted({(int(frame[1], 16), int(frame[2], 16)) for frame in frames if frame})
        self._starts = [start for start, _ in self._functions]
        self._symbols = self._exported()
        self._pointers = self._relocated()
        self._leads = self._edges()

    def reached_bytes(self, begins: Iterable[int]) -> int:
        """Bytes of all functions that can be reached from those at `begins`."""
        seen: set[int] = set()
        left = [self._at(begin) for begin in begins]
        while left:
            function = left.pop()
            if function is not None and function not in seen:
                seen.add(function)
                left += self._leads[function]
        return sum(end - start for start, end in map(self._functions.__getitem__, seen))

    def _lines(self, program: str, *options: str) -> Iterator[str]:
        """What one of the binutils says of the library, line by line: a disassembly is ten times as
        large as the code.
        """
        command = [tool(program, "binutils"), *options, str(self._path)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as child:
            assert child.stdout is not None
            yield from child.stdout
        if child.returncode != 0:
            raise RuntimeFault(f"{program} cannot read {self._path} (exit code {child.returncode}).")

    def _at(self, address: int) -> int | None:
        """The function that an address is in."""
        index = bisect_right(self._starts, address) - 1
        return index if index >= 0 and address < self._functions[index][1] else None

    def _exported(self) -> dict[str, int]:
        lines = (line.split() for line in self._lines("nm", "-D", "--defined-only"))
        return {parts[2].partition("@")[0]: int(parts[0], 16) for parts in lines if len(parts) == 3}

    def _relocated(self) -> dict[int, int]:
        """What the loader writes into the library: the address that each place will hold."""
        found = {}
        for line in self._lines("readelf", "--relocs", "--wide"):
            parts = line.split()
            if "R_X86_64_RELATIVE" in parts:
                found[int(parts[0], 16)] = int(parts[-1], 16)
            elif len(parts) > 4 and parts[2] in ("R_X86_64_64", "R_X86_64_GLOB_DAT"):
                found[int(parts[0], 16)] = int(parts[3], 16)
        return found

    def _edges(self) -> dict[int, set[int | None]]:
        leads: dict[int, set[int | None]] = defaultdict(set)
        for line in self._lines("objdump", "--disassemble", "--no-show-raw-insn", "--section=.text"):
            place, colon, rest = line.partition(":\t")
            if colon and ("# " in rest or "<" in rest) and (function := self._at(int(place, 16))) is not None:
                leads[function].update(self._targets(rest))
        return leads

    def _targets(self, instruction: str) -> list[int | None]:
        """The functions that an instruction leads to: where it jumps, what it calls, and what it
        reads a pointer to or takes the place of.
        """
        if refers := _DATA.search(instruction):
            address = int(refers[1], 16)
            if instruction.startswith("lea"):
                return [self._at(address), *self._table(address)]
            places = (
                (address, address + _WORD_BYTES) if "%xmm" in instruction else (address,)
            )  # two pointers are read as one vector
            read = [self._pointers[place] for place in places if place in self._pointers]
            return [function for pointer in read for function in (self._at(pointer), *self._table(pointer))]
        if called := _CALLED.search(instruction):
            name = called[2]
            return [
                self._at(
                    self._symbols.get(name.removesuffix("@plt"), -1)
                    if name.endswith("@plt")
                    else int(called[1], 16)
                )
            ]
        return []

    def _table(self, address: int) -> list[int | None]:
        """The functions in a table of pointers: up to the first word that is none."""
        found = []
        while address in self._pointers:
            found.append(self._at(self._pointers[address]))
            address += _WORD_BYTES
        return found


def _registered(folder: Path) -> Mapping[str, Mapping[str, list[int]]]:
    """Where each operator's kernels begin, by library.

    Asked of the runtime in a process of its own: what registers kernels cannot be unloaded.
    """
    if sys.platform != "linux" or not (folder / KERNELS[0]).is_file():
        raise UsageError(
            f"The size of kernels is measured in executorch's package for Linux; {folder} has no"
            f" {KERNELS[0]}."
        )
    machine = (folder / KERNELS[0]).read_bytes()[18]
    if machine != 0x3E:
        raise UsageError(
            "The size of kernels is measured in executorch's package for x86-64; this one is for another"
            " machine."
        )
    done = subprocess.run(
        [sys.executable, "-m", "edgeexport.runtime.kernel_code", str(folder)], capture_output=True, text=True
    )
    if done.returncode != 0:
        raise RuntimeFault(f"The runtime's registry cannot be read: {done.stderr.strip()[-500:]}")
    return json.loads(done.stdout)


class _Kernel(ctypes.Structure):
    """executorch::runtime::Kernel"""

    _fields_ = (("name", ctypes.c_char_p), ("key", ctypes.c_char_p), ("function", ctypes.c_void_p))


class _Span(ctypes.Structure):
    """executorch::runtime::Span<const Kernel>"""

    _fields_ = (("first", ctypes.POINTER(_Kernel)), ("count", ctypes.c_size_t))


def _ask_registry(folder: Path) -> dict[str, dict[str, list[int]]]:
    """Load the libraries here and read the registry; the places are relative to where each library
    is loaded.
    """
    core = [ctypes.CDLL(str(folder / name), ctypes.RTLD_GLOBAL) for name in CORE][0]
    present = [name for name in KERNELS if (folder / name).is_file()]
    for name in present:
        ctypes.CDLL(str(folder / name), ctypes.RTLD_GLOBAL)
    registry = getattr(core, REGISTRY)
    registry.restype = _Span
    span = registry()
    extents = {name: _loaded_at(name) for name in present}
    found: dict[str, dict[str, list[int]]] = {name: defaultdict(list) for name in present}
    for kernel in span.first[: span.count]:
        for name, (begin, end) in extents.items():
            if begin <= kernel.function < end:
                found[name][kernel.name.decode()].append(kernel.function - begin)
    return found


def _loaded_at(library: str) -> tuple[int, int]:
    lines = [
        line.split()[0].split("-")
        for line in Path("/proc/self/maps").read_text().splitlines()
        if line.endswith(f"/{library}")
    ]
    return min(int(begin, 16) for begin, _ in lines), max(int(end, 16) for _, end in lines)


if __name__ == "__main__":
    print(json.dumps(_ask_registry(Path(sys.argv[1]))))
