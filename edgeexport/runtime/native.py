"""Runs a `.pte` with the native runner: the C++ runtime that an app links, in a process of its own,
without Python.

Commands go to the runner as JSON lines, tensors as raw files. `native@BOARD` is the same runner on
an emulated board, `native@BOARD=URL` on the board itself. Where it runs is a place: `Here`, or
`remote.There`, with the same methods.
"""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import tempfile
import weakref
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import torch

from edgeexport.artifact.folder import Artifact
from edgeexport.errors import RuntimeFault
from edgeexport.runtime.boards import board as board_of
from edgeexport.runtime.runner import runner_command

if TYPE_CHECKING:
    from edgeexport.runtime.remote import There

TIME_LIMIT_S = 600.0
"""How long one command may take."""

EMULATOR_SLOWDOWN = 24
"""By how much more, in an emulator: a call of Whisper's encoder took it more than TIME_LIMIT_S on a
busy machine, and image encoders compute more.
"""

GRACE_S = 5.0
"""How long a runner may take to end when its input has ended."""

_COUNTED = "instructions "

_threads: int | None = None


class Engine:
    """A `.pte` in a runner of its own.

    Its state, where it has one, is inside: one conversation at a time.
    """

    def __init__(
        self, artifact: Artifact, board: str = "", at: str = "", runner: Sequence[str | Path] | None = None
    ):
        """On this machine, on the emulated `board`, or on the board `at` an address; `runner` is
        the command to start instead. Raises UsageError, RuntimeFault.
        """
        self._place = Here(runner) if runner else place_of(board, at)
        emulated = bool(board) and not at
        # An emulator counts instructions in one thread.
        self._session = Session(
            self._place, 1 if emulated else _threads, TIME_LIMIT_S * (EMULATOR_SLOWDOWN if emulated else 1)
        )
        program, *data = (
            self._place.program(path.resolve()) for path in (artifact.program_path, *artifact.data_paths)
        )
        self._program_ms = self._session.ask({"do": "load", "program": program, "data": data})["load_ms"]
        self._method_ms: dict[str, float] = {}
        self._last: dict[str, Any] = {}
        self._called: list[str] = []
        self._entries = artifact.methods

    def method(self, name: str) -> Callable[[Sequence[torch.Tensor]], Sequence[torch.Tensor]]:
        """A method, loaded. Raises RuntimeFault."""
        self._method_ms[name] = self._session.ask({"do": "load_method", "method": name})["load_ms"]
        return lambda tensors: self.call(name, tensors)[0]

    def call(
        self, name: str, tensors: Sequence[torch.Tensor], warmup: int = 0, repeat: int = 1
    ) -> tuple[list[torch.Tensor], list[float]]:
        """The outputs, and the latency of each of `repeat` calls in ms. Raises RuntimeFault."""
        inputs = []
        for number, tensor in enumerate(tensors):
            file = self._place.write(
                f"in{number}", tensor.contiguous().flatten().view(torch.uint8).numpy().tobytes()
            )
            inputs.append(
                {"file": file, "dtype": str(tensor.dtype).removeprefix("torch."), "shape": list(tensor.shape)}
            )
        self._last = {
            "do": "call",
            "method": name,
            "inputs": inputs,
            "outputs": self._place.path("out"),
            "warmup": warmup,
            "repeat": repeat,
        }
        answer = self._session.ask(self._last)
        self._called += [name] * (warmup + repeat)
        return [_tensor(output, self._place.read(output["file"])) for output in answer["outputs"]], answer[
            "latency_ms"
        ]

    def again(self) -> float:
        """The latency in ms of the last call, made once more: no tensor is sent, and the answer is
        not fetched. Raises RuntimeFault.
        """
        self._called.append(self._last["method"])
        return self._session.ask(self._last | {"warmup": 0, "repeat": 1})["latency_ms"][0]

    def load_ms(self, name: str) -> float:
        """What the runtime took to load the program and the method, which has been loaded."""
        return self._program_ms + self._method_ms[name]

    def instructions(self, name: str) -> list[dict[str, int]]:
        """Instructions of each call of a method so far, all and by kind, as the emulator counted
        them; nothing on a real CPU.
        """
        return [
            counted for called, counted in zip(self._called, self._session.instructions()) if called == name
        ]

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

    def close(self) -> None:
        """End the runner, and remove its files: now, rather than when nothing refers to this any
        more.
        """
        self._session.close()


class Here:
    """This machine as the place where a runner runs: a process, its tensors in a temporary
    folder.
    """

    def __init__(self, runner: Sequence[str | Path]):
        """`runner` is the command that starts it."""
        self._runner = [*map(str, runner)]
        self._home = tempfile.TemporaryDirectory(prefix="edgeexport-runner-")
        self.scratch = Path(self._home.name)

    def command(self, options: Sequence[str]) -> list[str]:
        """What starts the runner."""
        return [*self._runner, *options]

    def program(self, path: Path) -> str:
        """Where the runner finds a program: where it is."""
        return str(path)

    def path(self, name: str) -> str:
        """Where the runner is to write a file of the session."""
        return str(self.scratch / name)

    def write(self, name: str, content: bytes) -> str:
        """A file of the session, for the runner to read."""
        (self.scratch / name).write_bytes(content)
        return self.path(name)

    def read(self, path: str) -> bytes:
        """A file of the session that the runner wrote."""
        return Path(path).read_bytes()

    def lost(self) -> str:
        """There is no connection to lose."""
        return ""

    def close(self) -> None:
        """Removes the session's folder."""
        self._home.cleanup()


def place_of(board: str = "", at: str = "") -> Here | There:
    """Where a runner is to run, with the runner there: this machine, an emulated board, or the
    board `at` an address. Raises UsageError, RuntimeFault.
    """
    if not at:
        return Here(runner_command(board))
    from edgeexport.runtime.remote import There

    return There(board_of(board), at)


def make_ready(artifact: Artifact, board: str = "", at: str = "") -> None:
    """Build what has to be built; reach the device, and send it what it lacks.

    Raises UsageError, RuntimeFault.
    """
    place = place_of(board, at)
    try:
        place.program(artifact.program_path.resolve())
    finally:
        place.close()


class Session:
    """A running runner in its place: one JSON line to it, one back."""

    def __init__(self, place: Here | There, threads: int | None = None, limit_s: float | None = None):
        self._place, self._limit_s = place, limit_s or TIME_LIMIT_S
        self._log = place.scratch / "log"
        command = place.command(("--threads", str(threads)) if threads else ())
        try:
            with open(self._log, "wb") as log:
                self._process = subprocess.Popen(
                    command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True
                )
        except OSError as error:
            place.close()
            raise RuntimeFault(f"The native runner cannot be started ({error}).") from error
        self._input, self._output = _pipes(self._process)
        self._end = weakref.finalize(self, _end, self._process, place)

    def ask(self, command: dict[str, Any]) -> dict[str, Any]:
        """Its answer.

        Raises RuntimeFault with the runtime's own error, or with the signal that ended it.
        """
        if not self._end.alive:
            raise RuntimeFault(f"The native runner was ended before '{command['do']}'.")
        try:
            self._input.write(json.dumps(command) + "\n")
            self._input.flush()
            line = self._line(command)
        except BrokenPipeError:
            line = ""
        if not line:
            raise RuntimeFault(
                f"The native runner {self._how_it_ended()} at '{command['do']}'{self._last_words()}."
            )
        try:
            answer = json.loads(line)
        except json.JSONDecodeError as error:
            raise RuntimeFault(
                f"The native runner's answer to '{command['do']}' is none: {line.strip()[:200]!r}."
            ) from error
        if not answer["ok"]:
            raise RuntimeFault(
                f"The native runner: {answer['stage']}: {answer['error']} (code"
                f" {answer['code']}){self._last_words()}"
            )
        return answer

    def close(self) -> None:
        """End the runner, and remove the session's files."""
        self._end()

    def _line(self, command: dict[str, Any]) -> str:
        import selectors

        with selectors.DefaultSelector() as waiting:
            waiting.register(self._output, selectors.EVENT_READ)
            if not waiting.select(self._limit_s):
                self._process.kill()
                self.close()
                raise RuntimeFault(
                    f"The native runner did not answer '{command['do']}' within {self._limit_s:g} s, and was"
                    " ended."
                )
        return self._output.readline()

    def _how_it_ended(self) -> str:
        code = self._process.wait(self._limit_s)
        number = -code if code < 0 else code - 128  # as a shell says it
        how = (
            f"was ended by {signal.Signals(number).name}"
            if number in set(signal.Signals)
            else f"ended with code {code}"
        )
        return self._place.lost() or how

    def instructions(self) -> list[dict[str, int]]:
        """What the plugin of the emulator wrote, a call each."""
        return [
            json.loads(line.removeprefix(_COUNTED)) for line in self._log_lines() if line.startswith(_COUNTED)
        ]

    def _log_lines(self) -> list[str]:
        return self._log.read_text(errors="replace").splitlines()

    def _last_words(self) -> str:
        lines = [line for line in self._log_lines() if not line.startswith(("I ", "W ", _COUNTED))]
        return f" ({' | '.join(lines[-2:])})" if lines else ""


def _pipes(process: subprocess.Popen[str]) -> tuple[IO[str], IO[str]]:
    """Its standard input and output, both of which it was started with."""
    assert process.stdin is not None and process.stdout is not None
    return process.stdin, process.stdout


def _end(process: subprocess.Popen[str], place: Here | There) -> None:
    to_it, from_it = _pipes(process)
    with contextlib.suppress(BrokenPipeError):  # it has ended already
        to_it.close()
    try:
        process.wait(GRACE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    from_it.close()
    place.close()


def _tensor(output: dict[str, Any], content: bytes) -> torch.Tensor:
    dtype = getattr(torch, output["dtype"])
    return (
        torch.frombuffer(bytearray(content), dtype=dtype).reshape(output["shape"])
        if content
        else torch.empty(output["shape"], dtype=dtype)
    )


def prepare() -> None:
    """Nothing: the runner is a process of its own."""


def set_threads(count: int) -> None:
    """Set the threads of runners that are started from now on."""
    global _threads
    _threads = count
