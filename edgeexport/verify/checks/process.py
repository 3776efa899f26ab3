"""The child process of `run_checks`: python -m edgeexport.verify.checks.process ARTIFACT REPORT
RUNTIME BOARD METHOD,..
"""

from __future__ import annotations

import importlib
import json
import sys

from edgeexport.artifact.manifest import to_json
from edgeexport.runtime.program import open_program


def main(path: str, report: str, runtime: str, board: str, methods: str) -> None:
    """Run every check that is for this kind of program; each finding is one line of `report`,
    written at once. Stops when the program does not load.
    """
    program = open_program(
        path, runtime=runtime, board=board, methods=[name for name in methods.split(",") if name]
    )
    with open(report, "w", encoding="utf-8") as stream:
        for name in program.artifact.target.checks:
            failed = False
            for finding in importlib.import_module(f"edgeexport.verify.checks.{name}").check(program):
                stream.write(json.dumps(to_json(finding)) + "\n")
                stream.flush()
                failed |= not finding.passed
            if name == "loads" and failed:
                return


if __name__ == "__main__":
    main(*sys.argv[1:])
