"""Builds the native runner (`edgeexport/native`) when it is first needed, and keeps it in the
user's cache.

For this machine it is linked with the libraries of the executorch package that is installed; for
aarch64 with those of the same release's package for it, which pip fetches. That one runs in qemu as
a board's CPU, or on the board itself.
"""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from importlib import metadata, resources
from pathlib import Path

from edgeexport.errors import RuntimeFault, UsageError
from edgeexport.runtime.boards import Board, board

NAME = "edgeexport-runner"
COUNTER = "instructions.so"
"""The plugin with which qemu counts instructions (`native/instructions.cpp`)."""

CMAKE_AT_LEAST = (3, 28)
"""Older ones write the runtime path of executorch's libraries wrongly (its CMake package says so
and defines no targets).
"""

AARCH64_WHEELS = {
    "1.5.1": (
        "3.11",
        "manylinux_2_28_aarch64",
        "8ee02348a3ea80ddf770822911ebf78da616b73afce0fbaaa79f23311c88c66a",
    )
}
"""By executorch's version: the Python and platform tags of a wheel for aarch64 (its C++ libraries
need no Python), and its sha256.
"""

AARCH64_LIBRARIES = Path("/usr/aarch64-linux-gnu/lib")
"""The C and C++ libraries of Debian's cross compiler."""


LIBRARIES = tuple(
    f"libexecutorch{part}.so"
    for part in ("", "_kernels_optimized", "_kernels_quantized", "_backend_xnnpack", "_threadpool", "_etdump")
)
"""What the runner is linked with, as CMakeLists.txt names it."""

ANDROID_RUNNER = "EDGEEXPORT_ANDROID_RUNNER"
"""The environment variable with the path of a runner for Android; shared libraries beside it go
with it.
"""

ELF_MACHINES = {"x86_64": 0x3E, "aarch64": 0xB7}


def runner_command(board_name: str = "") -> tuple[str, ...]:
    """What starts the runner: on this machine, or in qemu as a board.

    It is built if it has to be. Raises UsageError for a missing tool.
    """
    return _emulated(board(board_name)) if board_name else (str(_kept("host", _build_here)),)


def runner_files(device: Board) -> dict[str, Path]:
    """The runner for a device and its libraries, by the names that they have there.

    It is built if it has to be. Raises UsageError.
    """
    if device.libc.startswith("bionic"):
        return _android(device)
    if device.arch == platform.machine():
        import executorch

        runner, libraries = _kept("host", _build_here), Path(executorch.__path__[0]) / "lib"
    elif device.arch == "aarch64":
        runner = _kept("aarch64", _build_aarch64)
        libraries = runner.parent / "lib"
    else:
        raise UsageError(
            f"No runner for {device.arch} can be built on {platform.machine()}: check {device.name} from a"
            " machine of its kind."
        )
    return {NAME: runner, **{name: libraries / name for name in LIBRARIES}}


def _android(device: Board) -> dict[str, Path]:
    """The user's own runner: executorch's packages have C++ libraries for glibc only."""
    given = os.environ.get(ANDROID_RUNNER, "")
    if not given:
        raise UsageError(
            f"The board {device.name} runs Android, for which executorch's packages have no C++ libraries."
            " Build edgeexport/runtime/native_runner/runner.cpp with the Android NDK and ExecuTorch for"
            f" Android, and give its path: {ANDROID_RUNNER}=/path/to/{NAME}."
        )
    runner = Path(given)
    if not runner.is_file():
        raise UsageError(f"{ANDROID_RUNNER} is {given}, and there is no such file.")
    with open(runner, "rb") as stream:
        header = stream.read(20)
    if header[:4] != b"\x7fELF" or int.from_bytes(header[18:20], "little") != ELF_MACHINES[device.arch]:
        raise UsageError(f"{ANDROID_RUNNER} is {given}, which is no program for {device.arch}.")
    return {NAME: runner, **{path.name: path for path in sorted(runner.parent.glob("*.so"))}}


def _emulated(device: Board) -> tuple[str, ...]:
    if device.emulation is None or device.arch != "aarch64":
        raise UsageError(
            f"The board {device.name} has no emulation. Check it with --board {device.name} alone, which"
            " compares figures."
        )
    qemu = tool("qemu-aarch64", "qemu-user")
    runner = _kept("aarch64", _build_aarch64)
    root = runner.parent / "roots" / hashlib.sha256(device.emulation.cpuinfo.encode()).hexdigest()[:16]
    if not root.exists():
        with tempfile.TemporaryDirectory(dir=runner.parent) as folder:
            made = Path(folder) / "root"
            (made / "proc").mkdir(parents=True)
            (made / "proc" / "cpuinfo").write_text(
                device.emulation.cpuinfo
            )  # without it qemu 7.2 shows the host's
            (made / "lib").symlink_to(AARCH64_LIBRARIES)
            root.parent.mkdir(exist_ok=True)
            made.rename(root)
    return (
        qemu,
        "-cpu",
        device.emulation.cpu,
        "-plugin",
        str(runner.parent / COUNTER),
        "-L",
        str(root),
        str(runner),
    )


def _kept(kind: str, build: Callable[[Path], None]) -> Path:
    """The runner from the cache, or built into it; `build` fills a folder in which it is NAME."""
    import platformdirs

    content = b"".join(
        (_sources() / name).read_bytes() for name in ("CMakeLists.txt", "runner.cpp", "instructions.cpp")
    )
    key = hashlib.sha256(
        content + metadata.version("executorch").encode() + kind.encode() + sys.prefix.encode()
    ).hexdigest()[:16]
    home = platformdirs.user_cache_path("edgeexport") / "native" / key
    if not (home / NAME).exists():
        home.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=home.parent) as folder:
            made = Path(folder) / "made"
            made.mkdir()
            build(made)
            try:
                made.rename(home)
            except OSError:  # another process was quicker
                if not (home / NAME).exists():
                    raise
    return home / NAME


def _sources():
    return resources.files("edgeexport.runtime") / "native_runner"


def _build_here(home: Path) -> None:
    import executorch

    tool(os.environ.get("CXX", "g++"), "g++")
    (package,) = executorch.__path__
    _compile(home, f"-DCMAKE_PREFIX_PATH={package}")


def _build_aarch64(home: Path) -> None:
    tool("aarch64-linux-gnu-g++", "g++-aarch64-linux-gnu")
    package = home / "site"
    with zipfile.ZipFile(_aarch64_wheel(home)) as wheel:
        wanted = (
            "executorch/lib/",
            "executorch/include/",
            "executorch/share/",
            "executorch/extension/pybindings/",
        )
        wheel.extractall(package, [name for name in wheel.namelist() if name.startswith(wanted)])
    system = (
        "-DCMAKE_SYSTEM_NAME=Linux",
        "-DCMAKE_SYSTEM_PROCESSOR=aarch64",
        "-DCMAKE_CXX_COMPILER=aarch64-linux-gnu-g++",
    )
    _compile(
        home,
        f"-DCMAKE_PREFIX_PATH={package / 'executorch'}",
        *system,
        "-DCMAKE_FIND_ROOT_PATH_MODE_PROGRAM=NEVER",
    )
    _compile_counter(home)
    (package / "executorch" / "lib").rename(home / "lib")
    shutil.rmtree(package)
    shutil.rmtree(home / "wheel")


def _aarch64_wheel(home: Path) -> Path:
    version = metadata.version("executorch")
    if version not in AARCH64_WHEELS:
        raise UsageError(
            f"No package for aarch64 is known that belongs to executorch {version}. Known:"
            f" {', '.join(AARCH64_WHEELS)}."
        )
    python, platform, sha256 = AARCH64_WHEELS[version]
    command = [
        sys.executable,
        "-m",
        "pip",
        "download",
        "--quiet",
        "--no-deps",
        "--only-binary=:all:",
        "--dest",
        str(home / "wheel"),
    ]
    done = subprocess.run(
        [*command, "--python-version", python, "--platform", platform, f"executorch=={version}"],
        capture_output=True,
        text=True,
    )
    found = list((home / "wheel").glob("*.whl"))
    if done.returncode != 0 or len(found) != 1:
        raise UsageError(
            f"pip could not fetch executorch {version} for aarch64: {done.stderr.strip()[-500:]}"
        )
    if hashlib.sha256(found[0].read_bytes()).hexdigest() != sha256:
        raise UsageError(
            f"The package for aarch64 that pip fetched ({found[0].name}) is not the one that is expected: its"
            " sha256 is another."
        )
    return found[0]


def _compile(home: Path, *settings: str) -> None:
    cmake = _cmake()
    with tempfile.TemporaryDirectory() as build, resources.as_file(_sources()) as source:
        for command in ([cmake, "-S", str(source), "-B", build, *settings], [cmake, "--build", build]):
            done = subprocess.run(command, capture_output=True, text=True)
            if done.returncode != 0 and "nlohmann_json" in done.stderr:
                raise UsageError(
                    "The native runner needs nlohmann's JSON headers. Install them (Debian: apt install"
                    " nlohmann-json3-dev)."
                )
            if done.returncode != 0:
                raise RuntimeFault(
                    f"The native runner could not be built: {(done.stderr or done.stdout).strip()[-1500:]}"
                )
        shutil.copy2(Path(build) / NAME, home / NAME)


def _compile_counter(home: Path) -> None:
    compiler = tool(os.environ.get("CXX", "g++"), "g++")
    with resources.as_file(_sources() / "instructions.cpp") as source:
        done = subprocess.run(
            [compiler, "-std=c++17", "-O2", "-shared", "-fPIC", str(source), "-o", str(home / COUNTER)],
            capture_output=True,
            text=True,
        )
    if done.returncode != 0:
        raise RuntimeFault(f"The counter of instructions could not be built: {done.stderr.strip()[-1500:]}")


def tool(name: str, package: str) -> str:
    """The path of a program. Raises UsageError that names its Debian package."""
    found = shutil.which(name)
    if found is None:
        raise UsageError(f"'{name}' is not there. Install it (Debian: apt install {package}).")
    return found


def _cmake() -> str:
    """A CMake that is new enough: of this Python's environment, else of the system."""
    beside = Path(sys.executable).with_name("cmake")
    found = str(beside) if beside.exists() else shutil.which("cmake")
    wanted = ".".join(map(str, CMAKE_AT_LEAST))
    if found is None:
        raise UsageError(
            f"The native runner needs CMake {wanted}. Install it (pip install 'edgeexport[native]')."
        )
    said = subprocess.run([found, "--version"], capture_output=True, text=True).stdout.split()
    version = tuple(int(part) for part in said[2].split(".")[:2])
    if version < CMAKE_AT_LEAST:
        raise UsageError(
            f"The native runner needs CMake {wanted}, and {found} is {said[2]}. Install a newer one (pip"
            " install 'edgeexport[native]')."
        )
    return found
