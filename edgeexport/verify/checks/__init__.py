"""Checks of an emitted artifact, from its files alone, in a process of their own.

Each check is one file with `check(program) -> Iterator[Finding]`; the target names those that are
for its programs, in their order. They run in a child process, because a bad program can crash the
runtime: a crash is a failed finding, not the end of the build.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from edgeexport.artifact.folder import Artifact, open_artifacts
from edgeexport.errors import UnknownName
from edgeexport.method import Finding
from edgeexport.runtime.child_process import ChildCrashed, Outcome, run_child
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
    request = {
        "path": str(artifact.path),
        "runtime": str(ready(artifact, runtime)),
        "board": board,
        "methods": list(methods),
    }
    outcome = run_child("edgeexport.verify.checks.process", request, "the checking process")
    findings = [Finding(**facts) for facts in outcome.results]
    if outcome.error is not None:
        if outcome.stage not in artifact.target.checks and not isinstance(outcome.error, ChildCrashed):
            raise outcome.error  # it could not begin
        findings.append(_failure(outcome, artifact.target.checks))
    return findings, outcome.peak_rss_bytes


def _failure(outcome: Outcome, checks: Sequence[str]) -> Finding:
    """The check that was cut off by a crash, or that raised an error of ours."""
    error, check = outcome.error, outcome.stage if outcome.stage in checks else "loads"
    if isinstance(error, ChildCrashed):
        measured, message = f"the checking process {error.how}", f"at: {outcome.stage}. {error.last_lines}"
    else:
        measured, message = "it could not be done", str(error)
    return Finding(check, None, False, measured, "it runs to the end", message)


def check_artifact(
    path: str | os.PathLike[str], runtime: str | None = None, board: str = "", methods: Sequence[str] = ()
) -> list[Finding]:
    """Open an artifact, or each of an archive, and run every check on it.

    Raises ArtifactError when it cannot be opened, UsageError as `run_checks`.
    """
    return [
        finding
        for artifact in open_artifacts(os.fspath(path))
        for finding in run_checks(artifact, runtime, board, methods)[0]
    ]
