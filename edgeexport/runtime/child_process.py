"""Work in a process of its own, because what it runs can crash: one way to start it, to follow it,
and to tell how it ended.

A child is a module of a few lines, and its caller one:

    def main(request, report): ...          # report.stage("loading"), report.result({...})
    if __name__ == "__main__":
        run_as_child(main)

    answer = run_child("package.module", {"path": ...}, "the measuring process").answered()
"""

from __future__ import annotations

import json
import logging
import os
import resource
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

from edgeexport import errors
from edgeexport.errors import EdgeExportError, RuntimeFault

REQUEST, REPORTS, LOG = "request.json", "reports.jsonl", "log"
KINDS = "result", "answer", "error", "peak_rss_bytes"
"""What a child reports beside its stages."""

TAIL_LINES = 3
"""So many last lines of a crashed process's output are in the message."""

STARTING = "starting"
"""The stage of a child that has not named one yet."""


class ChildCrashed(RuntimeFault):
    """A child process ended without an answer: `how` (a signal's name or an exit code), and the
    last lines that it wrote.
    """

    def __init__(self, called: str, how: str, stage: str, last_lines: str):
        super().__init__(f"{called[0].upper()}{called[1:]} {how} at: {stage}. {last_lines}".strip())
        self.how, self.last_lines = how, last_lines


@dataclass(frozen=True)
class Outcome:
    """What came of a child: its results so far, in order, and its answer, or the error that it
    raised or ended with at `stage`; its peak resident bytes.
    """

    results: tuple[Any, ...]
    answer: Any
    error: EdgeExportError | None
    stage: str
    peak_rss_bytes: int

    def answered(self) -> Any:
        """The answer. Raises what the child raised, ChildCrashed when it ended before its time."""
        if self.error is not None:
            raise self.error
        return self.answer


class Report:
    """How a child tells where it is and what it found; every line is written at once, so that what
    was found before a crash is kept.
    """

    def __init__(self, stream: TextIO):
        self._stream = stream

    def stage(self, name: str) -> None:
        """What it does from now on."""
        self._write("stage", name)

    def result(self, value: Any) -> None:
        """One result, as JSON data."""
        self._write("result", value)

    def _write(self, kind: str, value: Any) -> None:
        self._stream.write(json.dumps([kind, value]) + "\n")
        self._stream.flush()


def run_child(module: str, request: Mapping[str, Any], called: str) -> Outcome:
    """What `python -m MODULE` makes of `request` (JSON data); `called` is the process's name in a
    message. When this process is interrupted, the child is killed.
    """
    with tempfile.TemporaryDirectory(prefix="edgeexport-child-") as made:
        folder = Path(made)
        (folder / REQUEST).write_text(json.dumps(request), encoding="utf-8")
        with open(folder / LOG, "wb") as log:
            child = subprocess.Popen(
                [sys.executable, "-m", module, made],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
            try:
                _, status, usage = os.wait4(child.pid, 0)
            except BaseException:
                child.kill()
                child.wait()
                raise
        child.returncode = os.waitstatus_to_exitcode(status)
        written = (folder / LOG).read_text(encoding="utf-8", errors="replace").strip()
        said = _reports(folder / REPORTS)
    if written:
        logging.getLogger(__name__).info("%s wrote:\n%s", called, written)
    error = next((_rebuilt(*value) for value in said["error"]), None)
    stage = said["stage"][-1]
    if error is None and (child.returncode != 0 or not said["answer"]):
        error = ChildCrashed(called, _how(child.returncode), stage, _last(written))
    return Outcome(
        results=tuple(said["result"]),
        answer=next(iter(said["answer"]), None),
        error=error,
        stage=stage,
        peak_rss_bytes=next(iter(said["peak_rss_bytes"]), _bytes(usage.ru_maxrss)),
    )


def run_as_child(main: Callable[[dict[str, Any], Report], Any]) -> None:
    """Run `main(request, report)` for `run_child`, and tell it the answer, or the error if it is
    one of ours; any other goes its way.
    """
    folder = Path(sys.argv[1])
    request = json.loads((folder / REQUEST).read_text(encoding="utf-8"))
    with open(folder / REPORTS, "w", encoding="utf-8") as stream:
        report = Report(stream)
        try:
            answer = main(request, report)
        except EdgeExportError as error:
            report._write("error", [_public_name(type(error)), str(error)])
            sys.exit(error.exit_code)
        else:
            report._write("answer", answer)
        finally:
            report._write("peak_rss_bytes", _peak_rss_bytes())


def _peak_rss_bytes() -> int:
    """The most that was resident of this process since it began to run this program: what the
    system tells its parent (and `getrusage`) also counts the parent's own, from before `exec`.
    """
    status = Path("/proc/self/status")
    if status.exists():
        lines = dict(line.split(":", 1) for line in status.read_text(encoding="utf-8").splitlines())
        return int(lines["VmHWM"].split()[0]) * 1024
    return _bytes(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)


def _bytes(maxrss: int) -> int:
    """`ru_maxrss` has another unit on macOS."""
    return maxrss * (1 if sys.platform == "darwin" else 1024)


def _reports(path: Path) -> dict[str, list[Any]]:
    """What was reported, by kind; of lines that were written in full, for a crash can cut the
    last.
    """
    said: dict[str, list[Any]] = {"stage": [STARTING]} | {kind: [] for kind in KINDS}
    lines = path.read_text(encoding="utf-8").split("\n")[:-1] if path.exists() else []
    for kind, value in map(json.loads, lines):
        said[kind].append(value)
    return said


def _last(written: str) -> str:
    return " | ".join(written.splitlines()[-TAIL_LINES:])


def _how(code: int) -> str:
    return f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"


def _public_name(kind: type[EdgeExportError]) -> str:
    """The name in edgeexport.errors of a class, or of its nearest ancestor there."""
    return next(each.__name__ for each in kind.__mro__ if getattr(errors, each.__name__, None) is each)


def _rebuilt(name: str, message: str) -> EdgeExportError:
    """An error as it was raised; not all of them are made from their message."""
    kind = getattr(errors, name)
    return kind.__new__(kind, message)
