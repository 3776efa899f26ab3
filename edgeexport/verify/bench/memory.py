"""What one method takes in memory, in a process of its own: the child of `bench` for that."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from edgeexport.artifact.cases import GoldenAnswers
from edgeexport.method import draw
from edgeexport.runtime.child_process import Report, run_as_child
from edgeexport.runtime.program import open_program

CALLS = 3


def main(request: dict[str, Any], report: Report) -> dict[str, Any]:
    """Resident bytes before the program is opened (Python and its libraries), with the method
    loaded, after some calls, and at most since opening.

    Of the native runner's process, here or on a board: before the method is loaded, the runtime and
    what it read of the program.
    """
    program = open_program(request["path"], request["threads"], request["runner"])
    method = program[request["method"]]
    entry = program.artifact.methods[method.name]
    sizes = {name: request["sizes"].get(name, dim.min) for name, dim in entry.ranges.items()}
    golden = GoldenAnswers(program.artifact.golden())
    inputs = tuple(draw(spec, sizes, index, golden) for index, spec in enumerate(entry.inputs))
    report.stage(f"memory of {method.name}")
    probe = program.engine.memory if program.runtime.module == "native" else _resident
    before = probe()
    Path("/proc/self/clear_refs").write_text("5")  # the peak so far was Python's: it starts again here
    method.load()
    loaded = probe()
    for _ in range(CALLS):
        method(*inputs)
    steady = probe()
    return {
        "artifact": request["name"],
        "method": method.name,
        "sizes": sizes,
        "runner": str(program.runtime),
        "rss_before_bytes": before["rss_bytes"],
        "rss_loaded_bytes": loaded["rss_bytes"],
        "rss_steady_bytes": steady["rss_bytes"],
        "peak_rss_bytes": steady["peak_rss_bytes"],
        "planned_bytes": entry.planned_memory_bytes,
    }


def _resident() -> dict[str, int]:
    """Bytes of this process, now and at most."""
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return {
        name: int(status[key].split()[0]) * 1024
        for name, key in (("rss_bytes", "VmRSS"), ("peak_rss_bytes", "VmHWM"))
    }


if __name__ == "__main__":
    run_as_child(main)
