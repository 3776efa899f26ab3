"""Runs a `.pt2` of AOTInductor, with the weights shared by all methods and the state held outside,
by whoever calls.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence

import torch

from edgeexport.artifact.folder import Artifact
from edgeexport.artifact.manifest import MethodEntry
from edgeexport.errors import ArtifactError, RuntimeFault
from edgeexport.runtime.cpu_isa import cpu_flags


class Engine:
    """A loaded `.pt2`.

    Calls write the state that they are given, so one package serves many conversations.
    """

    def __init__(self, artifact: Artifact):
        """Raises ArtifactError for a package that this CPU would stop at with SIGILL, RuntimeFault
        when it does not load.
        """
        settings = artifact.manifest.recipe.settings
        _refuse_wider(settings["cpu_isa"])
        self._device = settings["device"]
        self._entries = artifact.methods
        try:
            self._models = (
                _package().load_pt2(str(artifact.program_path), load_weights_from_disk=True).aoti_runners
            )
        except (RuntimeError, ValueError, KeyError) as error:
            raise RuntimeFault(
                f"PyTorch cannot load {artifact.program_path} ({_first_line(error)})."
            ) from error

    def method(self, name: str) -> Callable[[Sequence[torch.Tensor]], Sequence[torch.Tensor]]:
        """A method: it takes its inputs, then the state. Raises RuntimeFault."""
        if name not in self._models:
            raise RuntimeFault(
                f"The package has no model '{name}'. It has: {', '.join(sorted(self._models))}."
            )
        run = self._models[name].loader.run

        def call(tensors: Sequence[torch.Tensor]) -> Sequence[torch.Tensor]:
            return [t.to("cpu") for t in run([t.to(self._device) for t in tensors])]

        return call

    def new_state(self) -> dict[str, torch.Tensor]:
        """The state of a new conversation, zero."""
        return {name: tensor.to(self._device) for name, tensor in zero_state(self._entries).items()}


def _package():
    return importlib.import_module("torch.export.pt2_archive._package")


def prepare() -> None:
    """Import what reads packages."""
    _package()


def zero_state(entries: Mapping[str, MethodEntry]) -> dict[str, torch.Tensor]:
    """What every method of a manifest together changes, by name, zero."""
    specs = {s.name: s for entry in entries.values() for s in entry.state}
    return {name: torch.zeros(s.shape, dtype=getattr(torch, s.dtype)) for name, s in specs.items()}


def set_threads(count: int) -> None:
    """Set PyTorch's threads."""
    torch.set_num_threads(count)


def _refuse_wider(isa: dict) -> None:
    missing = sorted(set(isa["flags"]) - cpu_flags())
    if missing:
        raise ArtifactError(
            f"This package was built for {isa['name']}, and this CPU has no {', '.join(missing[:8])}: it"
            " would be stopped at its first such instruction. Build it with a lower --cpu-isa."
        )


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0][:300]
