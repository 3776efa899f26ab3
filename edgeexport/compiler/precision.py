"""What a precision is: passes over the rewritten programs, before a target emits them.

They come last, on the graph that is lowered: quantized any earlier, weights are folded back to float
and rewrites lose their matches.
"""

from __future__ import annotations

from dataclasses import dataclass

from edgeexport.compiler.rewrite import Pass


@dataclass(frozen=True)
class Precision:
    """The numbers that a program computes with; `passes` turn a float32 one into it."""

    name: str
    passes: tuple[Pass, ...]
