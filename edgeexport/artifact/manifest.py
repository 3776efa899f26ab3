"""The manifest of an artifact: what was built from what, what it takes and returns, and what was
found out about it.

Each object of `schemas/manifest.schema.json` is a dataclass here, with a field for each property in
the order in which they are written. A field with `may_lack()` is one that artifacts of earlier
versions have not; without a value it is not written either.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import types
import typing
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

from edgeexport.artifact.schema import problem
from edgeexport.errors import ArtifactError
from edgeexport.method import Dim, Finding, Input, Output, Quality, Rule, Source, Tolerance
from edgeexport.progress import Progress
from edgeexport.samplers import Sampler, sampler_from_json, sampler_to_json

FORMAT = 1


def may_lack() -> Any:
    """A field whose property need not be there: None then."""
    return field(default=None, metadata={"may_lack": True})


@dataclass(frozen=True)
class ModelFacts:
    """The model, and what the user typed to name it."""

    name: str
    asked: str
    summary: str
    source: Source


@dataclass(frozen=True)
class WeightsFacts:
    """Where the weights come from, as in `method.Weights`, and the bytes of all distinct
    parameters.
    """

    source: str
    seed: int
    path: str | None
    sha256: str
    origin: str | None
    size_bytes: int

    @property
    def random(self) -> bool:
        return self.source == "random"


@dataclass(frozen=True)
class CalibrationFacts:
    """The calls that ranges were found with: where they are from, how many, the digest of their
    inputs in order, and the files that could not be used, with the reason.
    """

    source: str
    calls: int
    inputs_sha256: str
    skipped: tuple[str, ...] = ()


@dataclass(frozen=True)
class RecipeFacts:
    """How the target's recipe was asked to compile; the settings are the target's own, the rules
    and the calibration those of the precision.
    """

    name: str
    precision: str
    passes: tuple[str, ...]
    settings: Mapping[str, Any]
    rules: tuple[Rule, ...] | None = may_lack()
    calibration: CalibrationFacts | None = may_lack()


@dataclass(frozen=True)
class FileRecord:
    """Size and hash of a file."""

    size_bytes: int
    sha256: str


@dataclass(frozen=True)
class InputEntry(Input):
    """An input; the layout of every tensor at the boundary is contiguous."""

    JSON_ORDER: ClassVar = (
        "name",
        "dtype",
        "shape",
        "layout",
        "meaning",
        "unit",
        "range",
        "first_of",
        "sample",
    )

    layout: str = "contiguous"

    @classmethod
    def of(cls, spec: Input) -> Self:
        return cls(**vars(spec))


@dataclass(frozen=True, kw_only=True)
class OutputEntry(Output):
    """An output, with what was found at capture: its dtype, and its shape at the least size of
    every dimension.
    """

    dtype: str
    shape_at_least: tuple[int, ...]


@dataclass(frozen=True)
class DimEntry:
    """A dimension: the bounds that were asked for, those within which the emitted file was found
    right, and all sizes that were tried with success.
    """

    name: str
    asked: tuple[int, int]
    verified: tuple[int, int] | None = None
    sizes: tuple[int, ...] = ()

    @property
    def bounds(self) -> tuple[int, int]:
        """As verified where they were, else as asked for."""
        return self.verified or self.asked


@dataclass(frozen=True)
class StateEntry:
    """A buffer that calls change."""

    name: str
    dtype: str
    shape: tuple[int, ...]


@dataclass(frozen=True)
class CaptureFacts:
    """How a method was captured, and why not strictly."""

    mode: str
    strict_failure: str | None


@dataclass(frozen=True)
class PassReport:
    """A pass and the number of places it changed."""

    name: str
    changes: int


@dataclass(frozen=True)
class Outside:
    """Operators of one kind that no delegate took, and the partitioner's reason."""

    operator: str
    count: int
    reason: str


@dataclass(frozen=True)
class Delegation:
    """What of a method runs in delegates."""

    delegates: int
    delegated_nodes: int
    outside: tuple[Outside, ...]


@dataclass(frozen=True)
class Compiled:
    """How a method was compiled: seconds of it, and the bytes of its library, weights not among
    them.
    """

    compile_s: float
    library_bytes: int


@dataclass(frozen=True)
class MemoryForecast:
    """What a method was going to take, in bytes, as `compiler.memory_forecast` found before
    lowering.
    """

    weight_bytes: int
    live_bytes: int
    peak_bytes: int


@dataclass(frozen=True)
class CaseSetup:
    """The call before a case, which brings the state to where the case starts."""

    method: str
    kind: str
    sizes: Mapping[str, int]
    seed: int


@dataclass(frozen=True)
class Case:
    """A call that the artifact is checked on: what its inputs are drawn from, and their digest.

    Eager's answers are in the golden file, by method/id/output.
    """

    id: str
    kind: str
    sizes: Mapping[str, int]
    seed: int
    setup: CaseSetup | None
    inputs_sha256: str

    @property
    def label(self) -> str:
        """Sizes and kind, for people."""
        sizes = ", ".join(f"{k}={v}" for k, v in self.sizes.items())
        return " ".join(part for part in (sizes, self.kind) if part)


@dataclass(frozen=True, kw_only=True)
class MethodEntry:
    """All that is known of one method."""

    name: str
    inputs: tuple[InputEntry, ...]
    outputs: tuple[OutputEntry, ...]
    dims: tuple[DimEntry, ...]
    state: tuple[StateEntry, ...]
    capture: CaptureFacts
    passes: tuple[PassReport, ...]
    delegation: Delegation | None
    compiled: Compiled | None
    forecast: MemoryForecast | None = may_lack()
    planned_memory_bytes: int | None
    planned_limit_bytes: int | None
    tolerance: Tolerance
    quality: Quality | None = may_lack()
    cases: tuple[Case, ...]

    def checked(self, findings: Sequence[Finding]) -> Self:
        """With what the findings verified: ranges from sizes that ran right, memory from the
        program.
        """
        mine = [f for f in findings if f.method == self.name]
        planned = [f.details["planned_bytes"] for f in mine if f.check == "memory"]
        right = {f.details.get("case") for f in mine if f.check == "numerics" and f.passed}
        dims = []
        for dim in self.dims:
            sizes = tuple(sorted({case.sizes[dim.name] for case in self.cases if case.id in right}))
            verified = (sizes[0], sizes[-1]) if sizes else None
            dims.append(dataclasses.replace(dim, verified=verified, sizes=sizes))
        planned_memory_bytes = planned[0] if planned else None
        return dataclasses.replace(self, dims=tuple(dims), planned_memory_bytes=planned_memory_bytes)

    @property
    def ranges(self) -> dict[str, Dim]:
        """The dimensions by name: as verified where they were, else as asked for."""
        return {dim.name: Dim(dim.name, *dim.bounds) for dim in self.dims}


@dataclass(frozen=True)
class StepTime:
    """A step of the build."""

    name: str
    seconds: float


@dataclass(frozen=True)
class Timings:
    """What the build took: its steps, all of them, and the peak memory of its process and of the
    checking one.
    """

    steps: tuple[StepTime, ...]
    wall_s: float
    peak_rss_bytes: int
    check_peak_rss_bytes: int | None = may_lack()

    @classmethod
    def of(cls, progress: Progress, check_peak_rss_bytes: int | None = None) -> Self:
        """What was taken so far."""
        taken = progress.timings()
        steps = tuple(StepTime(**step) for step in taken["steps"])
        return cls(steps, taken["wall_s"], taken["peak_rss_bytes"], check_peak_rss_bytes)


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """The whole of it; `files` are all others of the folder, `prepare` is what the model's app
    needs beside the program, in the model's own words.
    """

    format: int
    created: str
    model: ModelFacts
    target: str
    precision: str
    program: str
    weights: WeightsFacts
    recipe: RecipeFacts
    versions: Mapping[str, str]
    files: Mapping[str, FileRecord]
    methods: tuple[MethodEntry, ...]
    prepare: Mapping[str, Any]
    pipelines: tuple[str, ...] | None = may_lack()
    findings: tuple[Finding, ...]
    timings: Timings

    @property
    def program_file(self) -> FileRecord:
        """Size and hash of the program."""
        return self.files[self.program]

    @property
    def failed_checks(self) -> tuple[str, ...]:
        """The checks that have a failed finding."""
        return tuple(dict.fromkeys(f.check for f in self.findings if not f.passed))

    def checked(self, findings: Sequence[Finding]) -> Self:
        """With the findings, and what they verified."""
        methods = tuple(entry.checked(findings) for entry in self.methods)
        return dataclasses.replace(self, methods=methods, findings=tuple(findings))

    @classmethod
    def parse(cls, text: str, where: object) -> Self:
        """The manifest that `text` is.

        Raises ArtifactError, with `where` and the place in it that is wrong.
        """
        try:
            data = json.loads(text)
        except json.JSONDecodeError as error:
            raise ArtifactError(f"{where} is damaged ({error}). Build the artifact again.") from error
        _validate(data, where)
        try:
            return cls.from_json(data)
        except (KeyError, TypeError) as error:  # of a sampler: the schema leaves those open
            raise ArtifactError(
                f"{where} is not a manifest that this version reads: {type(error).__name__}: {error}."
            ) from error

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """The manifest of data that the schema allows."""
        return from_json(cls, data)

    def to_json(self) -> dict[str, Any]:
        """The data that `from_json` read."""
        return to_json(self)

    def for_app(self, files: Sequence[str] = ()) -> dict[str, Any]:
        """What an app needs of it, with the records of its own `files`, if any: nothing of the
        machine that it was built on.
        """
        said = self.to_json()
        return {
            **{key: said[key] for key in ("format", "target", "precision", "program", "prepare")},
            "model": {"name": self.model.name},
            **({"files": {name: said["files"][name] for name in files}} if files else {}),
            "methods": [
                {key: entry[key] for key in ("name", "inputs", "outputs", "dims")}
                for entry in said["methods"]
            ],
        }

    def text(self, where: object) -> str:
        """What is written to the file; raises ArtifactError when the schema does not allow it."""
        text = json.dumps(self.to_json(), indent=2) + "\n"
        _validate(json.loads(text), where)
        return text


def _validate(data: Any, where: object) -> None:
    """Hold data against the JSON Schema."""
    found = problem(data, "manifest")
    if found is not None:
        raise ArtifactError(f"{where} is not a manifest that this version reads: {found}.")


def to_json(value: Any) -> Any:
    """A dataclass of the manifest, or what one holds, as JSON data."""
    if isinstance(value, Sampler):
        return to_json(sampler_to_json(value))
    if dataclasses.is_dataclass(value):
        found = {name: getattr(value, name) for name in fields_of(type(value))}
        lacking = {name for name, each in fields_of(type(value)).items() if each.may_lack}
        return {name: to_json(v) for name, v in found.items() if v is not None or name not in lacking}
    if isinstance(value, Mapping):
        return {name: to_json(v) for name, v in value.items()}
    return [to_json(v) for v in value] if isinstance(value, (list, tuple)) else value


def from_json(kind: Any, data: Any) -> Any:
    """Data that the schema allows as `kind`: a dataclass, or the type of a field of one."""
    if kind == Sampler:
        return sampler_from_json(data)
    if isinstance(kind, types.UnionType):
        (some, *others) = (each for each in typing.get_args(kind) if each is not types.NoneType)
        return data if data is None or others else from_json(some, data)
    if isinstance(kind, type) and dataclasses.is_dataclass(kind):
        fields = fields_of(kind)
        return kind(**{name: from_json(fields[name].kind, v) for name, v in data.items() if name in fields})
    of = typing.get_args(kind)
    if typing.get_origin(kind) is tuple:
        return tuple(from_json(of[0], each) for each in data)
    if typing.get_origin(kind) is Mapping:
        return {name: from_json(of[1], each) for name, each in data.items()}
    return data


@dataclass(frozen=True)
class Property:
    """What a field is in JSON: its type, and whether it may lack."""

    kind: Any
    may_lack: bool


@functools.cache
def fields_of(kind: type) -> dict[str, Property]:
    """The fields of a dataclass, in the order of JSON."""
    hints = typing.get_type_hints(kind)
    found = {
        each.name: Property(hints[each.name], "may_lack" in each.metadata)
        for each in dataclasses.fields(kind)
    }
    return {name: found[name] for name in getattr(kind, "JSON_ORDER", found)}
