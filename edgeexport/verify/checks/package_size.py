"""Are a package's weights stored once for all its methods?"""

from __future__ import annotations

from collections.abc import Iterator

from edgeexport.artifact.pt2 import weight_bytes
from edgeexport.method import Finding
from edgeexport.runtime.program import Program
from edgeexport.verify.checks.memory import FILE_OVERHEAD_BYTES, FILE_TO_WEIGHTS


def check(program: Program) -> Iterator[Finding]:
    """One finding: the weights in the package beside the model's own; its libraries come on top."""
    size = program.artifact.program_path.stat().st_size
    stored, weights = weight_bytes(program.artifact.program_path), program.manifest.weights.size_bytes
    measured = (
        f"{size / 1e6:.1f} MB, of them weights {stored / 1e6:.1f} MB = {stored / weights:.2f} x the model's"
        f" {weights / 1e6:.1f} MB"
    )
    passed = stored <= FILE_TO_WEIGHTS * weights + FILE_OVERHEAD_BYTES
    yield Finding(
        "package_size",
        None,
        passed,
        measured,
        f"weights <= {FILE_TO_WEIGHTS} x",
        "",
        {"size_bytes": size, "weight_bytes": stored},
    )
