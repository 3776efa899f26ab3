"""Runs a `.pte` with the native runner: the C++ runtime that an app links, in a process of its own, without Python.

The runner (`edgeexport/native`) is built when it is first needed, against the executorch package's own headers and libraries, and kept in
the user's cache. Commands go to it as JSON lines, tensors as raw files.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import signal
import subprocess
import sys
import tempfile
import weakref
from collections.abc import Callable, Sequence
from importlib import metadata, resources
from pathlib import Path
from typing import Any

import torch

from edgeexport.artifact import Artifact
from edgeexport.errors import RuntimeFault, UsageError

CMAKE_AT_LEAST = (3, 28)
"""Older ones write the runtime path of executorch's libraries wrongly (its CMake package says so and defines no targets)."""

TIME_LIMIT_S = 600.0
"""How long one command may take."""

_threads: int | None = None


class Engine:
    """A `.pte` in a runner of its own. Its state, where it has one, is inside: one conversation at a time."""

    def __init__(self, artifact: Artifact, runner: Sequence[str | Path] | None = None):
        """`runner` is the command that starts it; by default it is built for this machine. Raises UsageError, RuntimeFault."""
        self._session = Session(runner or (build_runner(),), _threads)
        self._session.ask({"do": "load", "program": str(artifact.program_path.resolve())})
        self._entries = artifact.methods
        self._calls = 0

    def method(self, name: str) -> Callable[[Sequence[torch.Tensor]], Sequence[torch.Tensor]]:
        """A method, loaded. Raises RuntimeFault."""
        self._session.ask({"do": "load_method", "method": name})
        return lambda tensors: self.call(name, tensors)[0]

    def call(self, name: str, tensors: Sequence[torch.Tensor], warmup: int = 0, repeat: int = 1) -> tuple[list[torch.Tensor], list[float]]:
        """The outputs, and the latency of each of `repeat` calls in ms. Raises RuntimeFault."""
        self._calls += 1
        folder = self._session.folder
        inputs = []
        for number, tensor in enumerate(tensors):
            file = folder / f"in{number}"
            file.write_bytes(tensor.contiguous().flatten().view(torch.uint8).numpy().tobytes())
            inputs.append({"file": str(file), "dtype": str(tensor.dtype).removeprefix("torch."), "shape": list(tensor.shape)})
        answer = self._session.ask(
            {"do": "call", "method": name, "inputs": inputs, "outputs": str(folder / "out"), "warmup": warmup, "repeat": repeat}
        )  # fmt: skip
        return [_tensor(output) for output in answer["outputs"]], answer["latency_ms"]

    def describe(self) -> dict[str, Any]:
        """The operators and backends that the runtime has, and its threads."""
        return self._session.ask({"do": "describe"})

    def memory(self) -> dict[str, int]:
        """Resident bytes of the runner, now and at most."""
        return self._session.ask({"do": "memory"})

    def new_state(self) -> None:
        """There is none to give: it is inside."""


class Session:
    """A running runner: one JSON line to it, one back."""

    def __init__(self, runner: Sequence[str | Path], threads: int | None = None):
        self._home = tempfile.TemporaryDirectory(prefix="edgeexport-runner-")
        self.folder = Path(self._home.name)
        self._log = open(self.folder / "log", "wb")  # closed with the process that writes to it
        command = [*map(str, runner), *(("--threads", str(threads)) if threads else ())]
        try:
            self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log, text=True)
        except OSError as error:
            raise RuntimeFault(f"The native runner cannot be started ({error}).") from error
        finally:
            self._log.close()
        weakref.finalize(self, _end, self._process, self._home)

    def ask(self, command: dict[str, Any]) -> dict[str, Any]:
        """Its answer. Raises RuntimeFault with the runtime's own error, or with the signal that ended it."""
        try:
            self._process.stdin.write(json.dumps(command) + "\n")
            self._process.stdin.flush()
            line = self._line(command)
        except BrokenPipeError:
            line = ""
        if not line:
            raise RuntimeFault(f"The native runner {self._how_it_ended()} at '{command['do']}'{self._last_words()}.")
        answer = json.loads(line)
        if not answer["ok"]:
            raise RuntimeFault(f"The native runner: {answer['stage']}: {answer['error']} (code {answer['code']}){self._last_words()}")
        return answer

    def _line(self, command: dict[str, Any]) -> str:
        import selectors

        with selectors.DefaultSelector() as waiting:
            waiting.register(self._process.stdout, selectors.EVENT_READ)
            if not waiting.select(TIME_LIMIT_S):
                self._process.kill()
                raise RuntimeFault(f"The native runner did not answer '{command['do']}' within {TIME_LIMIT_S:g} s, and was ended.")
        return self._process.stdout.readline()

    def _how_it_ended(self) -> str:
        code = self._process.wait(TIME_LIMIT_S)
        return f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with code {code}"

    def _last_words(self) -> str:
        lines = [x for x in (self.folder / "log").read_text(errors="replace").splitlines() if x.startswith(("E ", "F "))]
        return f" ({' | '.join(lines[-2:])})" if lines else ""


def _end(process: subprocess.Popen, home: tempfile.TemporaryDirectory) -> None:
    process.kill()
    process.wait()
    process.stdin.close()
    process.stdout.close()
    home.cleanup()


def _tensor(output: dict[str, Any]) -> torch.Tensor:
    content = bytearray(Path(output["file"]).read_bytes())
    dtype = getattr(torch, output["dtype"])
    return torch.frombuffer(content, dtype=dtype).reshape(output["shape"]) if content else torch.empty(output["shape"], dtype=dtype)


def set_threads(count: int) -> None:
    """Set the threads of runners that are started from now on."""
    global _threads
    _threads = count


def build_runner() -> Path:
    """The runner for this machine, built if the cache has none of these sources and this executorch. Raises UsageError for a missing tool."""
    import platformdirs

    sources = resources.files("edgeexport") / "native"
    version = metadata.version("executorch")
    content = b"".join((sources / name).read_bytes() for name in ("CMakeLists.txt", "runner.cpp"))
    key = hashlib.sha256(content + version.encode() + sys.platform.encode()).hexdigest()[:16]
    kept = platformdirs.user_cache_path("edgeexport") / "native" / key / "edgeexport-runner"
    if not kept.exists():
        with tempfile.TemporaryDirectory() as folder:
            _compile(sources, Path(folder))
            kept.parent.mkdir(parents=True, exist_ok=True)
            partial = kept.with_name(f".{kept.name}.partial-{Path(folder).name}")
            shutil.copy2(Path(folder) / kept.name, partial)
            partial.replace(kept)
    return kept


def _compile(sources, folder: Path) -> None:
    import executorch

    cmake = _cmake()
    if shutil.which("g++") is None and shutil.which("clang++") is None:
        raise UsageError("The native runner needs a C++ compiler. Install one (Debian: apt install g++).")
    (package,) = executorch.__path__
    with resources.as_file(sources) as source:
        for command in ([cmake, "-S", source, "-B", folder, f"-DCMAKE_PREFIX_PATH={package}"], [cmake, "--build", folder]):
            done = subprocess.run([str(c) for c in command], capture_output=True, text=True)
            if done.returncode != 0 and "nlohmann_json" in done.stderr:
                raise UsageError("The native runner needs nlohmann's JSON headers. Install them (Debian: apt install nlohmann-json3-dev).")
            if done.returncode != 0:
                raise RuntimeFault(f"The native runner could not be built: {(done.stderr or done.stdout).strip()[-1500:]}")


def _cmake() -> str:
    """A CMake that is new enough: of this Python's environment, else of the system."""
    beside = Path(sys.executable).with_name("cmake")
    found = str(beside) if beside.exists() else shutil.which("cmake")
    wanted = ".".join(map(str, CMAKE_AT_LEAST))
    if found is None:
        raise UsageError(f"The native runner needs CMake {wanted}. Install it (pip install 'edgeexport[native]').")
    said = subprocess.run([found, "--version"], capture_output=True, text=True).stdout.split()
    version = tuple(int(part) for part in said[2].split(".")[:2])
    if version < CMAKE_AT_LEAST:
        raise UsageError(f"The native runner needs CMake {wanted}, and {found} is {said[2]}. Install a newer one (pip install 'edgeexport[native]').")
    return found
