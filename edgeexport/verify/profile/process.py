"""The child process of `profile`: python -m edgeexport.verify.profile.process ARTIFACT FOLDER;
FOLDER holds request.json, and gets the rest.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from edgeexport.artifact.cases import GoldenAnswers, case_calls
from edgeexport.artifact.folder import open_artifact
from edgeexport.artifact.manifest import Case, from_json
from edgeexport.errors import EdgeExportError
from edgeexport.runtime import executorch
from edgeexport.runtime.program import Program
from edgeexport.verify.profile import ETDUMP
from edgeexport.verify.profile.bundled import write_bundled
from edgeexport.verify.profile.events import read_events

WARM_UP = 2
"""Calls that touch every weight once; not counted."""


def main(path: str, folder: Path) -> None:
    """Call each method, read back what was recorded, and write measured.json, with a bundled
    program where one was asked for.
    """
    request = json.loads((folder / "request.json").read_text(encoding="utf-8"))
    program = Program(open_artifact(path), request["threads"])
    program.engine = executorch.Engine(program.artifact, record_events=True)
    cases = {name: from_json(Case, case) for name, case in request["cases"].items()}
    executed = [
        method for name, case in cases.items() for method in _call(program, name, case, request["calls"])
    ]
    program.engine.write_events(folder / ETDUMP)
    times = read_events(folder / ETDUMP, executed, program.artifact.program_path)
    methods = {name: times[name] | {"sizes": case.sizes} for name, case in cases.items()}
    measured = {"threads": program.engine.threads(), "methods": methods}
    if request["bundled"]:
        write_bundled(program, cases, folder / request["bundled"])
    (folder / "measured.json").write_text(json.dumps(measured), encoding="utf-8")


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
    try:
        main(sys.argv[1], Path(sys.argv[2]))
    except EdgeExportError as error:
        print(error)
        sys.exit(error.exit_code)
