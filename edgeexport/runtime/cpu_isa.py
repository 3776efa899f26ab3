"""Instruction set levels of x86-64 CPUs: what a server package may use, and whether this CPU has
it.

Levels: x86-64 psABI, section "Micro-Architecture Levels" (gitlab.com/x86-psABIs/x86-64-ABI). Flags
are named as Linux names them in /proc/cpuinfo.
"""

from __future__ import annotations

import platform
from dataclasses import dataclass
from pathlib import Path

from edgeexport.errors import UsageError

_V3 = ("avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "abm", "movbe", "xsave")
_V4 = (*_V3, "avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl")

NATIVE = "native"


@dataclass(frozen=True)
class CpuIsa:
    """A level: what the compiler is told, the width of vectors (None: the widest here), and the CPU
    flags that it needs.
    """

    name: str
    vector_bits: int | None
    flags: tuple[str, ...]


LEVELS = {"x86-64-v3": CpuIsa("x86-64-v3", 256, _V3), "x86-64-v4": CpuIsa("x86-64-v4", 512, _V4)}


def cpu_isa(name: str) -> CpuIsa:
    """The level `name`; `native` is all that this CPU has.

    Raises UsageError for one that cannot be built here.
    """
    if name == NATIVE:
        return CpuIsa(NATIVE, None, tuple(sorted(cpu_flags())))
    if name in LEVELS:
        missing = sorted(set(LEVELS[name].flags) - cpu_flags())
        if missing:
            raise UsageError(
                f"This CPU has no {', '.join(missing)}, so a package for {name} could not be checked here."
                " Build for another --cpu-isa."
            )
        return LEVELS[name]
    known = ", ".join((*LEVELS, NATIVE))
    if name.startswith(("aarch64", "arm")):
        raise UsageError(
            f"A package for {name} cannot be built on {platform.machine()}: AOTInductor compiles against this"
            " machine's libtorch, and the result could not be run and checked here. Build on an aarch64"
            f" machine with --cpu-isa native. Here: {known}."
        )
    raise UsageError(f"There is no CPU instruction set level '{name}'. There are: {known}.")


def cpu_flags() -> frozenset[str]:
    """The flags of this machine's CPU; empty where Linux does not say."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return frozenset()
    flags = next((line.partition(":")[2] for line in lines if line.startswith(("flags", "Features"))), "")
    return frozenset(flags.split())
