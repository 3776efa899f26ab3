"""Does the program fit the board: its runtime, its memory, its storage?"""

from __future__ import annotations

from collections.abc import Iterator

from edgeexport.artifact.pte import read_methods
from edgeexport.artifact.targets import is_pte
from edgeexport.method import Finding
from edgeexport.runtime.boards import board
from edgeexport.runtime.program import Program


def check(program: Program) -> Iterator[Finding]:
    """The target, the file's size and the memory that each method is going to take, then for each
    method of a `.pte` its planned memory and its backends; nothing without a board.
    """
    if not program.board:
        return
    device = board(program.board)
    target, size = program.manifest.target, program.artifact.program_path.stat().st_size
    yield Finding(
        "board",
        None,
        target in device.targets,
        f"for {target}",
        f"{device.name} runs {', '.join(device.targets)}",
        "",
        {"board": device.name},
    )
    yield Finding(
        "board",
        None,
        size <= device.file_limit_bytes,
        f"file {size / 1e6:.1f} MB",
        f"<= {device.file_limit_bytes / 1e6:.0f} MB on {device.name}",
    )
    for name, entry in program.artifact.methods.items():
        if entry.forecast is not None:  # artifacts of earlier versions have none
            peak_bytes = entry.forecast.peak_bytes
            limit = f"<= {device.peak_limit_bytes / 1e6:.0f} MB, half of {device.name}'s memory"
            yield Finding(
                "board",
                name,
                peak_bytes <= device.peak_limit_bytes,
                f"is going to take {peak_bytes / 1e6:.0f} MB at its greatest sizes",
                limit,
            )
    if not is_pte(program.artifact.target):
        return
    for method in read_methods(program.artifact.program_path):
        missing = sorted(set(method.backends) - set(device.backends))
        passed = not missing and method.planned_bytes <= device.planned_limit_bytes
        yield Finding(
            "board",
            method.name,
            passed,
            f"{method.planned_bytes / 1e6:.1f} MB planned, {', '.join(method.backends) or 'no backend'}",
            f"<= {device.planned_limit_bytes / 1e6:.0f} MB, {', '.join(device.backends)}",
            f"It lacks {', '.join(missing)}." if missing else "",
        )
