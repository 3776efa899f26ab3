"""Does each library hold no instruction that is wider than the CPU level it was built for?"""

from __future__ import annotations

from collections.abc import Iterator

from edgeexport.artifact.pt2 import read_libraries
from edgeexport.method import Finding
from edgeexport.runtime.program import Program


def check(program: Program) -> Iterator[Finding]:
    """One finding a method.

    The package's own metadata cannot tell: it names the vectors of the kernels, not what the
    compiler made of the rest.
    """
    settings = program.manifest.recipe.settings
    isa = settings["cpu_isa"]
    wide = "avx512f" in isa["flags"]
    for library in read_libraries(program.artifact.program_path):
        yield Finding(
            "cpu_isa",
            library.method,
            wide or not library.wide_instructions,
            f"{library.wide_instructions} of {library.instructions} instructions need AVX-512",
            f"{isa['name']}: any" if wide else f"{isa['name']}: none",
            "",
            {"instructions": library.instructions, "wide_instructions": library.wide_instructions},
        )
