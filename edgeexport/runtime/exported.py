"""Runs the ExportedPrograms that a server artifact keeps, with PyTorch itself: what phone and
server are emitted from.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from edgeexport.artifact.exported_programs import load_programs
from edgeexport.artifact.folder import PROGRAMS, Artifact
from edgeexport.artifact.program_state import lift_state
from edgeexport.errors import RuntimeFault
from edgeexport.runtime import aoti


class Engine:
    """The captured programs of an artifact, state outside as in the package."""

    def __init__(self, artifact: Artifact):
        """Raises ArtifactError."""
        self._entries = artifact.methods
        names = {s.name for entry in artifact.methods.values() for s in entry.state}
        self._programs = {
            name: lift_state(program, sorted(names))
            for name, program in load_programs(artifact.path / PROGRAMS).items()
        }

    def method(self, name: str) -> Callable[[Sequence[torch.Tensor]], Sequence[torch.Tensor]]:
        """A method: it takes its inputs, then the state. Raises RuntimeFault."""
        if name not in self._programs:
            raise RuntimeFault(
                f"There is no ExportedProgram of '{name}'. There are: {', '.join(sorted(self._programs))}."
            )
        module = self._programs[name].module()

        def call(tensors: Sequence[torch.Tensor]) -> Sequence[torch.Tensor]:
            with torch.no_grad():
                answer = module(*tensors)
            answers = answer if isinstance(answer, (tuple, list)) else (answer,)
            return [
                t.contiguous() for t in answers
            ]  # what every program promises; a capture keeps the strides of its views

        return call

    def new_state(self) -> dict[str, torch.Tensor]:
        """The state of a new conversation, zero."""
        return aoti.zero_state(self._entries)
