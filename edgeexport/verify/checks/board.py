"""Does the program fit the board: its runtime, its memory, its storage?"""

from __future__ import annotations

from collections.abc import Iterator

from edgeexport import text
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
        f"file {text.size(size)}",
        f"<= {text.size(device.file_limit_bytes)} on {device.name}",
    )
    for name, entry in program.artifact.methods.items():
        if entry.forecast is not None:  # artifacts of earlier versions have none
            peak_bytes = entry.forecast.peak_bytes
            limit = f"<= {text.size(device.peak_limit_bytes)}, half of {device.name}'s memory"
            yield Finding(
                "board",
                name,
                peak_bytes <= device.peak_limit_bytes,
                f"is going to take {text.size(peak_bytes)} at its greatest sizes",
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
            f"{text.size(method.planned_bytes)} planned, {', '.join(method.backends) or 'no backend'}",
            f"<= {text.size(device.planned_limit_bytes)}, {', '.join(device.backends)}",
            f"It lacks {', '.join(missing)}." if missing else "",
        )
