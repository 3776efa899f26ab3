"""How much memory is planned for each method, and does it fit the model's limit?"""

from __future__ import annotations

from collections.abc import Iterator

from edgeexport import text
from edgeexport.artifact.pte import read_methods
from edgeexport.method import Finding
from edgeexport.runtime.program import Program


def check(program: Program) -> Iterator[Finding]:
    """One finding a method: the arena read from the program, beside the limit where the model has
    one; then the file's size.
    """
    for method in read_methods(program.artifact.program_path):
        limit = program.artifact.methods[method.name].planned_limit_bytes
        yield Finding(
            "memory",
            method.name,
            limit is None or method.planned_bytes <= limit,
            f"{text.size(method.planned_bytes)} planned",
            "recorded, no limit set" if limit is None else f"<= {text.size(limit)}",
            "",
            {"planned_bytes": method.planned_bytes},
        )
    size = program.artifact.program_path.stat().st_size
    weights = program.manifest.weights.size_bytes
    yield Finding(
        "memory",
        None,
        size <= stored_limit_bytes(weights),
        f"file {beside_weights(size, weights)}",
        f"<= {text.size(stored_limit_bytes(weights))}",
        "",
        {"size_bytes": size},
    )


def stored_limit_bytes(weights: int) -> int:
    """What a model with so many bytes of weights may be stored in."""
    return int(FILE_TO_WEIGHTS * weights) + FILE_OVERHEAD_BYTES


def beside_weights(stored: int, weights: int) -> str:
    """A size, and how many times the model's weights it is, where it has any."""
    if not weights:
        return f"{text.size(stored)}, the model has no weights"
    return f"{text.size(stored)} = {stored / weights:.2f} x the weights' {text.size(weights)}"


FILE_TO_WEIGHTS = 1.2
"""A program may be this many times its weights; more means that constants were stored expanded or
twice.
"""

FILE_OVERHEAD_BYTES = 256 * 1024
"""What a small program needs beside its weights: the graph itself."""
