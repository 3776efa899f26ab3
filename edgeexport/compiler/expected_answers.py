"""What quantized programs say, run by PyTorch: what the emitted file is held against."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch.export import ExportedProgram

from edgeexport.artifact.cases import RecordedCases, case_calls
from edgeexport.artifact.program_state import lift_state, mutated_buffers, state_of
from edgeexport.method import Method


def expected_answers(
    programs: Mapping[str, ExportedProgram], methods: Sequence[Method], recorded: RecordedCases
) -> bytes:
    """The content of EXPECTED: the answers of `programs` to the recorded cases, from the inputs
    that eager got, by `method/case/output`.
    """
    from safetensors.torch import save

    eager = recorded.answers()
    by_name = {method.name: method for method in methods}
    runs = _Runs(programs)
    answers = {}
    for method in methods:
        for case in recorded.cases[method.name]:
            before, inputs = case_calls(case, by_name, method, eager)
            runs.begin()
            if case.setup:
                runs.call(case.setup.method, before)
            for output, tensor in zip(method.outputs, runs.call(method.name, inputs)):
                answers[f"{method.name}/{case.id}/{output.name}"] = tensor.contiguous().clone()
    return save(answers)


class _Runs:
    """Programs that are called one after another on the state that they share."""

    def __init__(self, programs: Mapping[str, ExportedProgram]):
        names = mutated_buffers(programs.values())
        self._initial = {name: state_of(program, names) for name, program in programs.items()}
        self._modules = {name: lift_state(program, names).module() for name, program in programs.items()}
        self.begin()

    def begin(self) -> None:
        """The state of a new sequence."""
        self._state = {
            name: tensor.clone() for state in self._initial.values() for name, tensor in state.items()
        }

    def call(self, method: str, inputs: Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...]:
        """What a method says; it changes the state."""
        with torch.no_grad():
            answer = self._modules[method](*inputs, *(self._state[name] for name in self._initial[method]))
        return tuple(answer) if isinstance(answer, (tuple, list)) else (answer,)
