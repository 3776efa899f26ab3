"""Does the runtime have every operator and backend that the file calls?"""

from __future__ import annotations

from collections.abc import Iterator

from edgeexport.artifact.pte import read_methods
from edgeexport.method import Finding
from edgeexport.runtime.program import Program


def check(program: Program) -> Iterator[Finding]:
    """One finding a method; what is missing is named."""
    operators, backends = program.engine.registry()
    for method in read_methods(program.artifact.program_path):
        missing = sorted(set(method.operators) - operators) + sorted(set(method.backends) - backends)
        needs = f"{len(method.operators)} operators, {', '.join(method.backends) or 'no backend'}"
        message = f"This runtime lacks {', '.join(missing)}." if missing else ""
        details = {"operators": list(method.operators), "backends": list(method.backends)}
        yield Finding(
            "operators",
            method.name,
            not missing,
            f"needs {needs}",
            "all are in the runtime",
            message,
            details,
        )
