"""One method at one size, as contenders take it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import torch
from torch.export import ExportedProgram

from edgeexport.method import Method


@dataclass(frozen=True)
class Case:
    """A method, the inputs of the calls, and where contenders keep what they make once for all
    thread counts.

    `original` is the method of the original model, with the weights of the artifact: None where
    nothing is measured beside artifacts. `state` names the buffers that a call changes.
    """

    name: str
    original: Method | None
    sizes: dict[str, int]
    inputs: tuple[torch.Tensor, ...]
    state: tuple[str, ...]
    threads: int
    folder: Path

    @property
    def method(self) -> Method:
        """The original's, which every contender is made of that is not an artifact."""
        assert self.original is not None, "something is measured beside artifacts"
        return self.original

    @property
    def label(self) -> str:
        """The sizes, as part of a file's name."""
        return "-".join(f"{name}{size}" for name, size in self.sizes.items()) or "static"

    def program(self) -> ExportedProgram:
        """The method as this project captures it, dynamic sizes and all; not yet rewritten."""
        return self._captured

    @cached_property
    def _captured(self) -> ExportedProgram:
        from edgeexport.compiler.capture import capture

        return capture(self.method).program
