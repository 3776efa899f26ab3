"""Are a package's weights stored once for all its methods?"""

from __future__ import annotations

from collections.abc import Iterator

from edgeexport import text
from edgeexport.artifact.pt2 import weight_bytes
from edgeexport.method import Finding
from edgeexport.runtime.program import Program
from edgeexport.verify.checks.memory import beside_weights, stored_limit_bytes


def check(program: Program) -> Iterator[Finding]:
    """One finding: the weights in the package beside the model's own; its libraries come on top."""
    size = program.artifact.program_path.stat().st_size
    stored, weights = weight_bytes(program.artifact.program_path), program.manifest.weights.size_bytes
    yield Finding(
        "package_size",
        None,
        stored <= stored_limit_bytes(weights),
        f"{text.size(size)}, of them weights {beside_weights(stored, weights)}",
        f"weights <= {text.size(stored_limit_bytes(weights))}",
        "",
        {"size_bytes": size, "weight_bytes": stored},
    )
