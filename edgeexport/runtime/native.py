"""Runs a `.pte` with the native runner: the C++ runtime that an app links, in a process of its own, without Python.

Commands go to the runner as JSON lines, tensors as raw files. `native@BOARD` is the same runner on an emulated board.
"""

from __future__ import annotations

import json
import signal
import subprocess
import tempfile
import weakref
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from edgeexport.artifact import Artifact
from edgeexport.errors import RuntimeFault
from edgeexport.runtime.runner import runner_command

TIME_LIMIT_S = 600.0
"""How long one command may take."""

_COUNTED = "instructions "

_threads: int | None = None


class Engine:
    """A `.pte` in a runner of its own. Its state, where it has one, is inside: one conversation at a time."""

    def __init__(self, artifact: Artifact, board: str = "", runner: Sequence[str | Path] | None = None):
        """On this machine, or on the emulated `board`; `runner` is the command to start instead. Raises UsageError, RuntimeFault."""
        self._session = Session(runner or runner_command(board), 1 if board else _threads)  # instructions are counted in one thread
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

    def instructions(self) -> list[dict[str, int]]:
        """Instructions of each call so far, all and by kind, as the emulator counted them; nothing on a real CPU."""
        return self._session.instructions()

    def describe(self) -> dict[str, Any]:
        """The operators and backends that the runtime has, and its threads."""
        return self._session.ask({"do": "describe"})

    def registry(self) -> tuple[frozenset[str], frozenset[str]]:
        """The names of the operators and the backends that the runtime has."""
        found = self.describe()
        return frozenset(found["operators"]), frozenset(found["backends"])

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

    def instructions(self) -> list[dict[str, int]]:
        """What the plugin of the emulator wrote, a call each."""
        return [json.loads(line.removeprefix(_COUNTED)) for line in self._log_lines() if line.startswith(_COUNTED)]

    def _log_lines(self) -> list[str]:
        return (self.folder / "log").read_text(errors="replace").splitlines()

    def _last_words(self) -> str:
        lines = [line for line in self._log_lines() if not line.startswith(("I ", "W ", _COUNTED))]
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
