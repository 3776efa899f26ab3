"""The child process of `profile`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from edgeexport.artifact.cases import GoldenAnswers, case_calls
from edgeexport.artifact.folder import open_artifact
from edgeexport.artifact.manifest import Case, from_json
from edgeexport.runtime import executorch
from edgeexport.runtime.child_process import Report, run_as_child
from edgeexport.runtime.program import Program
from edgeexport.verify.profile import ETDUMP
from edgeexport.verify.profile.bundled import write_bundled
from edgeexport.verify.profile.events import read_events

WARM_UP = 2
"""Calls that touch every weight once; not counted."""


def main(request: dict[str, Any], report: Report) -> dict[str, Any]:
    """Call each method, and answer what was recorded; in the request's folder stay the ETDump, and
    a bundled program where one was asked for.
    """
    folder = Path(request["folder"])
    program = Program(open_artifact(request["path"]), request["threads"])
    program.engine = executorch.Engine(program.artifact, record_events=True)
    cases = {name: from_json(Case, case) for name, case in request["cases"].items()}
    executed = []
    for name, case in cases.items():
        report.stage(name)
        executed += _call(program, name, case, request["calls"])
    report.stage("reading the events")
    program.engine.write_events(folder / ETDUMP)
    times = read_events(folder / ETDUMP, executed, program.artifact.program_path)
    methods = {name: times[name] | {"sizes": case.sizes} for name, case in cases.items()}
    if request["bundled"]:
        report.stage("writing a bundled program")
        write_bundled(program, cases, folder / request["bundled"])
    return {"threads": program.engine.threads(), "methods": methods}


def _call(program: Program, name: str, case: Case, calls: int) -> list[str | None]:
    """Run a case `calls` times after what it needs; of each call made, the method if it counts.

    A state is at the same place for every call.
    """
    method = program[name]
    before, inputs = case_calls(case, program, method, GoldenAnswers(program.artifact.golden()))
    if case.setup:
        program[case.setup.method](*before)
    method.validate(inputs)
    for _ in range(WARM_UP + calls):
        method.execute(inputs)
    return [None] * (bool(before) + WARM_UP) + [name] * calls


if __name__ == "__main__":
    run_as_child(main)
