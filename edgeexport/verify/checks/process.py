"""The child process of `run_checks`."""

from __future__ import annotations

import importlib
from typing import Any

from edgeexport.artifact.manifest import to_json
from edgeexport.runtime.child_process import Report, run_as_child
from edgeexport.runtime.program import open_program


def main(request: dict[str, Any], report: Report) -> None:
    """Run every check that is for this kind of program; each is a stage, each finding a result.
    Stops when the program does not load.
    """
    program = open_program(
        request["path"], runtime=request["runtime"], board=request["board"], methods=request["methods"]
    )
    for name in program.artifact.target.checks:
        report.stage(name)
        failed = False
        for finding in importlib.import_module(f"edgeexport.verify.checks.{name}").check(program):
            report.result(to_json(finding))
            failed |= not finding.passed
        if name == "loads" and failed:
            return


if __name__ == "__main__":
    run_as_child(main)
