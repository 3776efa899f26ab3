"""Calibration: the calls that quantized programs are fitted to, and the ranges of the values inside
a program while it answers them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind

from edgeexport.artifact.cases import GoldenAnswers
from edgeexport.artifact.manifest import CalibrationFacts
from edgeexport.compiler.calibration_data import FolderCalls, folder_calls
from edgeexport.errors import UsageError
from edgeexport.method import Input, Method, Model
from edgeexport.samplers import Normal, Uniform, digest

SAMPLES, NOISE, FOLDER = "samples", "noise", "folder"

CALLS = 8
"""Of each method: with these, the photographs of `samplers.Photo` and their mirror images."""


@dataclass(frozen=True)
class Calibration:
    """Calls of the `methods` of `model`.

    `source` is SAMPLES: drawn as their inputs' samples say, at the least sizes, with inputs that
    come from another method as eager `answered`; NOISE, where the user accepts samples that are
    noise; or a folder of the user's data.
    """

    source: str
    model: Model
    methods: Mapping[str, Method]
    answered: GoldenAnswers

    @cached_property
    def _used(self) -> dict[str, Sequence[tuple[torch.Tensor, ...]]]:
        return {}

    @cached_property
    def _folder(self) -> FolderCalls | None:
        known = self.source in (SAMPLES, NOISE)
        return None if known else folder_calls(Path(self.source), self.model, self.methods)

    def calls(self, name: str) -> Sequence[tuple[torch.Tensor, ...]]:
        """The inputs of each call of a method.

        Raises UsageError for a method with state, for samples that are noise, and for a folder
        without data for the method.
        """
        if name not in self._used:
            if self.methods[name].setup is not None:
                raise UsageError(
                    f"'{name}' has state, which calibration does not feed back: leave its layers in float32"
                    " or dynamic_int8 (precisions, in the model's file)."
                )
            self._used[name] = self._read(name) if self._folder else self._drawn(self.methods[name])
        return self._used[name]

    def _read(self, name: str) -> Sequence[tuple[torch.Tensor, ...]]:
        assert self._folder is not None
        if name not in self._folder.calls:
            raise UsageError(f"--calibration {self.source}: nothing in it reaches '{name}'.")
        return self._folder.calls[name]

    def _drawn(self, method: Method) -> Sequence[tuple[torch.Tensor, ...]]:
        noisy = [i.name for i in method.inputs if _is_noise(i)]
        if noisy and self.source != NOISE:
            raise UsageError(
                f"The sample of {', '.join(noisy)} of '{method.name}' is noise, and ranges found with noise"
                " are not those of real input. Give a folder of data with --calibration DIR, or accept"
                " noise with --calibration noise."
            )
        sizes = method.cases()[0]
        return [method.draw(sizes, seed, self.answered) for seed in range(CALLS)]

    @property
    def facts(self) -> CalibrationFacts | None:
        """What was used so far; None where nothing was."""
        used = [call for calls in self._used.values() for call in calls]
        if not used:
            return None
        return CalibrationFacts(
            self.source if self._folder is None else FOLDER,
            len(used),
            digest([tensor for call in used for tensor in call]),
            tuple(self._folder.skipped) if self._folder else (),
        )


def _is_noise(spec: Input) -> bool:
    """Whether what an app would fill with a picture or a sound is drawn value by value."""
    return isinstance(spec.sample, (Uniform, Normal)) and len(spec.shape) >= 3


Ranges = Mapping[str, tuple[float, float]]
"""Least and greatest value, by the name of the node that makes it."""


def ranges_of(
    program: ExportedProgram, names: Iterable[str], calls: Iterable[Sequence[torch.Tensor]]
) -> Ranges:
    """The ranges of the values `names` over `calls`, each the inputs of one."""
    watched = _Watched(program, frozenset(names))
    for inputs in calls:
        watched(inputs)
    return watched.ranges


class _Watched(torch.fx.Interpreter):
    """Runs the functional graph, and notes the range of chosen values."""

    def __init__(self, program: ExportedProgram, names: frozenset[str]):
        super().__init__(program.graph_module)
        self._stored: Mapping[str, Any] = {**program.constants, **program.state_dict}
        self._specs = program.graph_signature.input_specs
        self._names = names
        self.ranges: dict[str, tuple[float, float]] = {}

    def run_node(self, n: torch.fx.Node) -> Any:
        value = super().run_node(n)
        if n.name in self._names:
            least, most = (float(v) for v in torch.aminmax(value))
            low, high = self.ranges.get(n.name, (least, most))
            self.ranges[n.name] = min(low, least), max(high, most)
        return value

    def __call__(self, inputs: Sequence[torch.Tensor]) -> None:
        given = iter(inputs)
        flat = [
            next(given) if spec.kind is InputKind.USER_INPUT else self._stored[str(spec.target)]
            for spec in self._specs
        ]
        with torch.no_grad():
            self.run(*flat)
