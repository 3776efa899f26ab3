"""How much memory is planned for each method, and does it fit the model's limit?"""

from __future__ import annotations

from collections.abc import Iterator

from edgeexport.artifact.pte import read_methods
from edgeexport.method import Finding
from edgeexport.runtime.program import Program


def check(program: Program) -> Iterator[Finding]:
    """One finding a method: the arena read from the program, beside the limit where the model has
    one; then the file's size.
    """
    for method in read_methods(program.artifact.program_path):
        limit = program.artifact.methods[method.name].planned_limit_bytes
        passed = limit is None or method.planned_bytes <= limit
        allowed = f"<= {limit / 1e6:.0f} MB" if limit is not None else "recorded, no limit set"
        yield Finding(
            "memory",
            method.name,
            passed,
            f"{method.planned_bytes / 1e6:.1f} MB planned",
            allowed,
            "",
            {"planned_bytes": method.planned_bytes},
        )
    size = program.artifact.program_path.stat().st_size
    weights = program.manifest.weights.size_bytes
    measured = f"file {size / 1e6:.1f} MB = {size / weights:.2f} x the weights' {weights / 1e6:.1f} MB"
    yield Finding(
        "memory",
        None,
        size <= FILE_TO_WEIGHTS * weights + FILE_OVERHEAD_BYTES,
        measured,
        f"<= {FILE_TO_WEIGHTS} x",
        "",
        {"size_bytes": size},
    )


FILE_TO_WEIGHTS = 1.2
"""A program may be this many times its weights; more means that constants were stored expanded or
twice.
"""

FILE_OVERHEAD_BYTES = 256 * 1024
"""What a small program needs beside its weights: the graph itself."""
