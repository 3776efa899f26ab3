"""Checks of an emitted artifact, from its files alone, in a process of their own.

Each check is one file with `check(program) -> Iterator[Finding]`; CHECKS is their order, and which
kinds of program they are for. They run in a child process, because a bad program can crash the
runtime: a crash is a failed finding, not the end of the build.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from edgeexport.artifact.folder import Artifact, open_artifacts
from edgeexport.errors import UnknownName
from edgeexport.method import Finding
from edgeexport.runtime.program import ready


def run_checks(
    artifact: Artifact, runtime: str | None = None, board: str = "", methods: Sequence[str] = ()
) -> tuple[list[Finding], int]:
    """Every check on `artifact`, in a child process, with `runtime`, `board` and `methods` as
    `open_program` takes them; the findings, and the child's peak resident bytes.

    Raises UsageError for a runtime that does not run this kind of program, cannot be built here, or
    a device that cannot be reached, and for a method that is not there.
    """
    for name in methods:
        if name not in artifact.methods:
            raise UnknownName("method", name, artifact.methods)
    found = ready(artifact, runtime)
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "findings.jsonl"
        log = Path(folder) / "log"
        command = [
            sys.executable,
            "-m",
            "edgeexport.verify.checks.process",
            str(artifact.path),
            str(report),
            str(found),
            board,
            ",".join(methods),
        ]
        with open(log, "wb") as stream:
            child = subprocess.Popen(
                command, stdout=stream, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL
            )
            try:
                _, status, usage = os.wait4(child.pid, 0)
            except BaseException:
                child.kill()
                child.wait()
                raise
        child.returncode = os.waitstatus_to_exitcode(status)
        lines = report.read_text(encoding="utf-8").splitlines() if report.exists() else []
        findings = [Finding(**json.loads(line)) for line in lines]
        if child.returncode != 0:
            findings.append(
                _crash(child.returncode, findings, log.read_text(encoding="utf-8", errors="replace"))
            )
    return findings, usage.ru_maxrss * 1024


def _crash(code: int, findings: list[Finding], log: str) -> Finding:
    how = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
    after = f"after the check '{findings[-1].check}'" if findings else "before its first finding"
    tail = " | ".join(log.strip().splitlines()[-3:])
    return Finding(
        "loads", None, False, f"the checking process {how}", "it runs to the end", f"{after}: {tail}"
    )


def check_artifact(
    path: str | os.PathLike, runtime: str | None = None, board: str = "", methods: Sequence[str] = ()
) -> list[Finding]:
    """Open an artifact, or each of an archive, and run every check on it.

    Raises ArtifactError when it cannot be opened, UsageError as `run_checks`.
    """
    return [
        finding
        for artifact in open_artifacts(path)
        for finding in run_checks(artifact, runtime, board, methods)[0]
    ]
