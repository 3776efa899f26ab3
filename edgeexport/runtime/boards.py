"""Boards: what a device is and takes, read from one TOML file each."""

from __future__ import annotations

import os
import platform
import sysconfig
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edgeexport.errors import UnknownName, UsageError
from edgeexport.runtime.cpu_isa import cpu_flags

FOLDERS = (
    Path(__file__).parents[2] / "boards",
    Path(sysconfig.get_path("data")) / "share" / "edgeexport" / "boards",
)
"""Of a checkout, and of an installed package."""

HOST = "host"
"""The machine that this runs on: its facts are read from it."""

_TEXT, _COUNT, _TEXTS = (
    {"type": "string", "minLength": 1},
    {"type": "integer", "minimum": 1},
    {"type": "array", "items": {"type": "string"}},
)


def _table(required: dict[str, Any], **optional: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "required": list(required),
        "properties": {**required, **optional},
        "additionalProperties": False,
    }


SCHEMA = _table(
    {
        "summary": _TEXT,
        "arch": {"enum": ["aarch64", "x86_64"]},
        "cores": _COUNT,
        "memory_bytes": _COUNT,
        "isa": _TEXTS,
        "libc": _TEXT,
        "sources": {**_TEXTS, "minItems": 1},
        "runtime": _table({"targets": {**_TEXTS, "minItems": 1}, "backends": _TEXTS}, cpu_isa=_TEXT),
        "budgets": _table({"file_bytes": _COUNT, "planned_memory_bytes": _COUNT}),
    },
    reach=_table({"by": {"enum": ["ssh", "adb"]}}),
    emulation=_table(
        {
            "cpu": _TEXT,
            "cpuinfo": _table(
                dict.fromkeys(("implementer", "architecture", "variant", "part", "revision"), _TEXT)
            ),
        }
    ),
)


@dataclass(frozen=True)
class Emulation:
    """How qemu plays a board: its name of the CPU, and the board's lines of /proc/cpuinfo."""

    cpu: str
    cpuinfo: str


@dataclass(frozen=True)
class Board:
    """A device: its CPU (`isa` in Linux' names), memory, runtime, and what a program on it may
    take. `cpu_isa` is the level that server packages are built for.
    """

    name: str
    summary: str
    arch: str
    cores: int
    memory_bytes: int
    isa: tuple[str, ...]
    libc: str
    sources: tuple[str, ...]
    targets: tuple[str, ...]
    backends: tuple[str, ...]
    cpu_isa: str | None
    file_limit_bytes: int
    planned_limit_bytes: int
    emulation: Emulation | None
    reach: str
    """`ssh` or `adb`; empty where the file does not say."""

    @property
    def peak_limit_bytes(self) -> int:
        """What a method may take at most: half of the memory, the rest is the system's and the
        app's.
        """
        return self.memory_bytes // 2


def names() -> list[str]:
    """The boards that come with edgeexport, and HOST."""
    return sorted({HOST} | {path.stem for folder in FOLDERS for path in folder.glob("*.toml")})


def board(name: str) -> Board:
    """A board by name, or a user's own as the path of a TOML file.

    Raises UnknownName; UsageError with the line of what is wrong in a file.
    """
    if name == HOST:
        return _host()
    if name.endswith(".toml"):
        path = Path(name)
        if not path.is_file():
            raise UsageError(f"There is no board file {path}.")
        return _read(path)
    for folder in FOLDERS:
        if (folder / f"{name}.toml").is_file():
            return _read(folder / f"{name}.toml")
    raise UnknownName("board", name, names())


def _host() -> Board:
    """This machine, which may use all of its memory."""
    memory_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return Board(
        HOST,
        f"this machine: {platform.platform()}",
        platform.machine(),
        os.cpu_count() or 1,
        memory_bytes,
        tuple(sorted(cpu_flags())),
        " ".join(platform.libc_ver()),
        ("/proc/cpuinfo and sysconf of this machine",),
        ("xnnpack", "aoti"),
        ("XnnpackBackend",),
        "native",
        memory_bytes,
        memory_bytes,
        None,
        "",
    )


def _read(path: Path) -> Board:
    import jsonschema.exceptions

    text = path.read_text(encoding="utf-8")
    try:
        facts = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{path} is not TOML: {error}.") from error
    error = jsonschema.exceptions.best_match(jsonschema.Draft202012Validator(SCHEMA).iter_errors(facts))
    if error is not None:
        raise UsageError(f"{path}{_line(text, error)}: {error.message}.")
    emulation = facts.get("emulation")
    return Board(
        path.stem,
        facts["summary"],
        facts["arch"],
        facts["cores"],
        facts["memory_bytes"],
        tuple(facts["isa"]),
        facts["libc"],
        tuple(facts["sources"]),
        tuple(facts["runtime"]["targets"]),
        tuple(facts["runtime"]["backends"]),
        facts["runtime"].get("cpu_isa"),
        facts["budgets"]["file_bytes"],
        facts["budgets"]["planned_memory_bytes"],
        emulation
        and Emulation(emulation["cpu"], _cpuinfo(facts["cores"], facts["isa"], emulation["cpuinfo"])),
        facts.get("reach", {}).get("by", ""),
    )


def _line(text: str, error) -> str:
    """Where in the file an error of the schema is: at the key that is wrong, or in the table that
    lacks one.
    """
    surplus = (
        sorted(set(error.instance) - set(error.schema["properties"]))
        if error.validator == "additionalProperties"
        else []
    )
    wanted = surplus[:1] or [str(part) for part in error.absolute_path if isinstance(part, str)][-1:]
    for number, line in enumerate(text.splitlines(), 1):
        if wanted and line.lstrip(" [").startswith(wanted[0]):
            return f", line {number}"
    return ""


def _cpuinfo(cores: int, isa: list[str], cpu: dict[str, str]) -> str:
    """/proc/cpuinfo as Linux writes it for aarch64."""
    one = (
        f"BogoMIPS\t: 108.00\nFeatures\t: {' '.join(isa)}\nCPU implementer\t: {cpu['implementer']}\nCPU"
        f" architecture: {cpu['architecture']}\nCPU variant\t: {cpu['variant']}\nCPU part\t:"
        f" {cpu['part']}\nCPU revision\t: {cpu['revision']}\n\n"
    )
    return "".join(f"processor\t: {core}\n{one}" for core in range(cores))
