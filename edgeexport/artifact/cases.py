"""Cases: the calls that an artifact is checked on, and what eager answered to them.

A case is recorded in the manifest as what its inputs were drawn from (sizes, a seed, a kind), with
their digest; eager's answers are tensors in GOLDEN. Whoever has the artifact draws the same inputs
again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from edgeexport.artifact.manifest import Case, CaseSetup
from edgeexport.errors import UsageError
from edgeexport.method import Input, Method, draw
from edgeexport.samplers import Normal, Photo, Uniform, digest


@dataclass(frozen=True)
class RecordedCases:
    """What eager answered: the content of GOLDEN; and by method its cases, and the dtype and least
    shape of each output.
    """

    golden: bytes
    cases: Mapping[str, tuple[Case, ...]]
    outputs: Mapping[str, list[tuple[str, tuple[int, ...]]]]

    def answers(self) -> GoldenAnswers:
        """What eager answered, as inputs of other methods are taken from it."""
        from safetensors.torch import load

        return GoldenAnswers(load(self.golden))


def record_cases(methods: Sequence[Method]) -> RecordedCases:
    """Ask the original model every case of every method, in the order of `methods`.

    Raises UsageError where a method returns another number of tensors than it declares.
    """
    from safetensors.torch import save

    answers: dict[str, Any] = {}
    cases: dict[str, tuple[Case, ...]] = {}
    outputs_of: dict[str, list] = {}
    by_name = {m.name: m for m in methods}
    for method in methods:
        sizes = method.cases()
        kinds = [("structured", s) for s in sizes]
        if any(isinstance(i.sample, Photo) for i in method.inputs):
            kinds.append(("random", sizes[0]))
        cases[method.name] = ()
        for index, (kind, size) in enumerate(kinds):
            seed = 10 * index
            case = Case(str(index), kind, size, seed, _setup(method, size, seed), inputs_sha256="")
            before, inputs = case_calls(case, by_name, method, GoldenAnswers(answers))
            if method.setup:
                by_name[method.setup.method].answer(*before)
            outputs = method.answer(*inputs)
            if len(outputs) != len(method.outputs):
                raise UsageError(
                    f"'{method.name}' returns {len(outputs)} tensors; {len(method.outputs)} outputs are"
                    " declared."
                )
            for spec, tensor in zip(method.outputs, outputs):
                answers[f"{method.name}/{index}/{spec.name}"] = tensor.contiguous().clone()
            cases[method.name] += (replace(case, inputs_sha256=digest((*before, *inputs))),)
            outputs_of.setdefault(
                method.name, [(str(t.dtype).removeprefix("torch."), tuple(t.shape)) for t in outputs]
            )
    return RecordedCases(save(answers), cases, outputs_of)


def _setup(method: Method, sizes: Mapping[str, int], seed: int) -> CaseSetup | None:
    """The call before a case that brings the state to where it starts."""
    if method.setup is None:
        return None
    wanted = {theirs: sizes[ours] for theirs, ours in method.setup.sizes.items()}
    return CaseSetup(method.setup.method, "structured", wanted, seed)


class Answering(Protocol):
    """A method that can be called, and says what it takes: of a program, or a stand-in for one."""

    @property
    def inputs(self) -> Sequence[Input]: ...

    def __call__(self, *tensors: Any) -> tuple: ...


class Methods(Protocol):
    """Methods by their name."""

    def __getitem__(self, name: str) -> Answering: ...


def answer(program: Methods, name: str, case: Case, golden: GoldenAnswers) -> tuple:
    """What a method says to a case, after the call that sets up its state."""
    before, inputs = case_calls(case, program, program[name], golden)
    if case.setup:
        program[case.setup.method](*before)
    return program[name](*inputs)


def case_calls(case: Case, methods, method, outputs: Mapping) -> tuple[tuple, tuple]:
    """The tensors of a case: those of the call that sets up the state (none without one), and those
    of the call itself.

    `methods` gives a method by its name, `method` is the one of the case: of the catalogue or of a
    program.
    """
    setup = case.setup
    before = case_inputs(methods[setup.method].inputs, setup, outputs) if setup else ()
    return before, case_inputs(method.inputs, case, outputs)


def case_inputs(inputs: Sequence[Input], case: Case | CaseSetup, outputs: Mapping) -> tuple:
    """The tensors of one call.

    `random` cases draw noise where photographs would be, within the range that the input declares.
    """
    specs = inputs
    if case.kind == "random":
        noise = {i.name: Uniform(*i.range) if i.range else Normal() for i in inputs}
        specs = [replace(i, sample=noise[i.name]) if isinstance(i.sample, Photo) else i for i in inputs]
    return tuple(draw(spec, case.sizes, case.seed + index, outputs) for index, spec in enumerate(specs))


class GoldenAnswers(Mapping):
    """Golden answers of a method's first or last case, by `method/first/output`: what other
    methods' inputs come from.
    """

    def __init__(self, golden: Mapping):
        self._golden = golden

    def __getitem__(self, key: str):
        method, which, output = key.split("/")
        cases = (int(k.split("/")[1]) for k in self._golden if k.startswith(f"{method}/"))
        return self._golden[f"{method}/{0 if which == 'first' else max(cases)}/{output}"]

    def __iter__(self):
        return iter(self._golden)

    def __len__(self) -> int:
        return len(self._golden)
