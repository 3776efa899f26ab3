"""What a precision is: passes over the rewritten programs, before a target emits them.

They come last, on the graph that is lowered: quantized any earlier, weights are folded back to
float and rewrites lose their matches.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch.export import ExportedProgram

from edgeexport.compiler.rewrite import Pass, PassReport, run_passes


@dataclass(frozen=True)
class Precision:
    """The numbers that a program computes with; `passes` turn a float32 one into it."""

    name: str
    passes: tuple[Pass, ...]

    def apply(self, program: ExportedProgram) -> tuple[ExportedProgram, list[PassReport]]:
        """The program in this precision, and what each pass did. Raises RewriteError."""
        return run_passes(program, self.passes)
