"""The nouns: Model, Method, Input, Dim, Weights, Tolerance, Finding.

Nothing here imports torch when it is imported; these types are what the
catalogue, the manifest and the checks speak in.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from edgeexport.errors import UsageError
from edgeexport.samplers import Answers, Sampler, Uniform

if TYPE_CHECKING:
    import torch

_PRIMES = (2, 3, 7, 13, 31, 61, 127, 251)


@dataclass(frozen=True)
class Dim:
    """A named dimension that may vary from `min` to `max`, both included.

    One that is in no shape is a value that an input takes (`samplers.SizeOf`), the position of a
    decoding step, and is checked like a size.
    """

    name: str
    min: int = 1
    max: int = 1

    def __post_init__(self):
        if not 1 <= self.min <= self.max:
            raise UsageError(
                f"The range {self.min}:{self.max} of '{self.name}' is not one: "
                "write MIN:MAX with 1 <= MIN <= MAX, for example 1:16."
            )

    @property
    def dynamic(self) -> bool:
        return self.min < self.max

    def sizes(self) -> tuple[int, ...]:
        """The sizes that a check must try: the bounds, and primes between them."""
        return tuple(sorted({self.min, *(p for p in _PRIMES if self.min < p < self.max), self.max}))

    @classmethod
    def parse(cls, name: str, text: str) -> Dim:
        """`MIN:MAX` or `SIZE` as typed by a user. Raises UsageError."""
        low, _, high = text.partition(":")
        try:
            return cls(name, int(low), int(high or low))
        except ValueError:
            raise UsageError(
                f"'{text}' is not a range for '{name}': write MIN:MAX, for example 1:16, or one number."
            ) from None


@dataclass(frozen=True)
class Input:
    """One tensor that a method takes.

    `shape` holds sizes and names of dimensions; `range` the least and greatest value that makes
    sense, in `unit`; `sample` draws the check inputs. `first_of` names the dimension whose size
    says how many values count on from this one, all in `range`: the position of the first of N
    tokens.
    """

    name: str
    shape: tuple[int | str, ...]
    dtype: str = "float32"
    meaning: str = ""
    unit: str | None = None
    range: tuple[float, float] | None = None
    first_of: str | None = None
    sample: Sampler = field(default_factory=Uniform)

    def sized(self, sizes: Mapping[str, int]) -> tuple[int, ...]:
        """The shape with each named dimension replaced by its size."""
        return tuple(sizes[s] if isinstance(s, str) else s for s in self.shape)


@dataclass(frozen=True)
class Output:
    """One tensor that a method returns; its shape and dtype are found at capture.

    `metric` names a function of `compare.METRICS` that judges it as its user would, and
    `metric_limit` the least value allowed.
    """

    name: str
    meaning: str = ""
    metric: str | None = None
    metric_limit: float | None = None


@dataclass(frozen=True)
class Tolerance:
    """How far an emitted method may be from eager, and why that far.

    `max_abs_relative` is the largest absolute error over the range (max - min)
    of the eager output; `min_sqnr_db` the least signal to quantization-noise ratio.
    """

    max_abs_relative: float
    min_sqnr_db: float
    reason: str


@dataclass(frozen=True)
class Rule:
    """Layers, and the kind of numbers that they compute with: `fp32` or a name of
    compiler/precisions.

    Patterns as of file names: of methods, of operators (`linear`), and of the path of the module
    that a layer is from, in the module that was captured.
    """

    kind: str
    methods: str = "*"
    operators: str = "*"
    modules: str = "*"


INT8 = (Rule("dynamic_int8", operators="linear"), Rule("embedding_int8", operators="embedding"))
"""What `int8` means for a model whose file does not say better."""


@dataclass(frozen=True)
class Quality:
    """How far a quantized method may be from the float32 model, and why that far: the least SQNR,
    and the least value of each output's metric, by the metric's name.
    """

    min_sqnr_db: float
    reason: str
    metrics: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Setup:
    """The call that brings a method's state to where its check starts: `method`, each of its
    `sizes` taken from this dimension of the case.

    A decoding step at position 5 is checked after a prefill of 5 tokens: Setup("prefill",
    {"tokens": "position"}).
    """

    method: str
    sizes: Mapping[str, str]


@dataclass(frozen=True)
class Method:
    """One callable of the program.

    `module` is what is captured. `reference` answers like the original,
    untouched model; where a module was changed to be exportable the two differ,
    and checks compare the emitted file with `reference`.

    A module that changes its buffers (a key-value cache) makes a method with state. Methods share
    the state of the buffers that have the same names in their modules; `setup` says how a check
    gets to a defined state, and `reference` must follow it.
    """

    name: str
    module: torch.nn.Module
    inputs: tuple[Input, ...]
    outputs: tuple[Output, ...]
    dims: tuple[Dim, ...] = ()
    reference: Callable[..., Any] | None = None
    planned_limit_bytes: int | None = None
    setup: Setup | None = None

    def sizes(self) -> dict[str, int]:
        """The sizes that the example inputs have: an inner one, so that nothing is specialised to 0
        or 1.
        """
        return {d.name: min(d.max, max(d.min, 2)) for d in self.dims}

    def cases(self) -> list[dict[str, int]]:
        """The sizes to check at: each dimension through its own list, the others at their least;
        then all greatest.
        """
        least = {d.name: d.min for d in self.dims}
        cases = [least]
        for dim in self.dims:
            cases += [{**least, dim.name: size} for size in dim.sizes()]
        cases.append({d.name: d.max for d in self.dims})
        return [case for index, case in enumerate(cases) if case not in cases[:index]]

    def draw(self, sizes: Mapping[str, int], seed: int = 0, outputs: Answers | None = None) -> tuple:
        """Inputs of the given sizes.

        `outputs` holds earlier answers, for inputs that come from another method.
        """
        return draw_all(self.inputs, sizes, seed, outputs)

    def answer(self, *tensors) -> tuple[torch.Tensor, ...]:
        """What the original model says."""
        import torch

        with torch.no_grad():
            answer = (self.reference or self.module)(*tensors)
        return tuple(answer) if isinstance(answer, (tuple, list)) else (answer,)


def draw_all(
    inputs: Sequence[Input], sizes: Mapping[str, int], seed: int = 0, outputs: Answers | None = None
) -> tuple:
    """Inputs of the given sizes, as `Method.draw`."""
    return tuple(draw(spec, sizes, seed + index, outputs or {}) for index, spec in enumerate(inputs))


def draw(spec: Input, sizes: Mapping[str, int], seed: int, outputs: Answers) -> torch.Tensor:
    """One check input: contiguous, of the declared dtype, repeatable for a seed."""
    import torch

    return spec.sample.draw(spec.sized(sizes), getattr(torch, spec.dtype), seed, outputs, sizes)


@dataclass(frozen=True)
class Weights:
    """Where weights come from: `pretrained`, `random` with a seed, or a checkpoint file.

    `sha256` is filled in by loading; for random weights it is over the tensors.
    """

    source: str = "pretrained"
    seed: int = 0
    path: str | None = None
    sha256: str | None = None
    origin: str | None = None

    @classmethod
    def parse(cls, text: str) -> Weights:
        """`pretrained`, `random`, `random:SEED` or a path. Raises UsageError."""
        if text == "pretrained":
            return cls()
        kind, _, seed = text.partition(":")
        if kind == "random":
            if seed and not seed.isdigit():
                raise UsageError(f"'{text}': the seed is a whole number, for example random:7.")
            return cls(source="random", seed=int(seed or 0))
        return cls(source="checkpoint", path=text)

    def loaded(self, sha256: str, origin: str | None) -> Weights:
        return replace(self, sha256=sha256, origin=origin)


@dataclass(frozen=True)
class Source:
    """Where a model's code and released weights come from, and under what licence."""

    repository: str
    revision: str
    licence: str
    paper: str | None = None


@dataclass(frozen=True)
class Option:
    """One thing that a pipeline takes: `text`, `number`, `file` (read) or `output` (written).

    `sample` is what programs are compared on: "photo", "sound" and "frames" (a folder) are made,
    anything else is the value itself; of an `output`, anything says that what is written is
    compared.
    """

    name: str
    help: str
    kind: str = "text"
    multiple: bool = False
    required: bool = False
    default: Any = None
    sample: Any = None


@dataclass(frozen=True)
class Pipeline:
    """Real input to real output: `run(program, **options)` returns JSON-able facts, and writes
    the files it was asked for.
    """

    options: tuple[Option, ...]
    run: Callable[..., dict[str, Any]]
    example: str = ""


@dataclass(frozen=True)
class Model:
    """What a file in `models/` offers; everything that is particular to a model is here.

    `prepare` is what an app needs beside the program: normalisation, labels, sizes. It goes into
    the manifest. `assets` are files that it needs, by name, with their content: a tokenizer. They
    go into the artifact. `pipelines` are the names of those that its programs can run
    (edgeexport.pipelines), the one that people mean first. `precisions` are the rules of those
    precisions that mean something of their own for the model, `quality` is by precision what each
    may lose.
    """

    name: str
    summary: str
    source: Source
    load: Callable[[Weights], tuple[torch.nn.Module, Weights]]
    methods: Callable[[torch.nn.Module, Mapping[str, Dim]], tuple[Method, ...]]
    dims: tuple[Dim, ...]
    tolerances: Mapping[str, Tolerance]
    assets: Callable[[Weights], Mapping[str, bytes]] = lambda weights: {}
    pipelines: tuple[str, ...] = ()
    prepare: Mapping[str, Any] = field(default_factory=dict)
    precisions: Mapping[str, tuple[Rule, ...]] = field(default_factory=dict)
    quality: Mapping[str, Quality] = field(default_factory=dict)


@dataclass(frozen=True)
class Finding:
    """What one check found; `measured` and `limit` are for people, side by side."""

    check: str
    method: str | None
    passed: bool
    measured: str
    limit: str
    message: str = ""
    details: Mapping[str, Any] = field(default_factory=dict)
