"""Measures in a process of its own: the child of `bench`."""

from __future__ import annotations

import importlib
import itertools
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import torch
from click import unstyle

from edgeexport import catalog
from edgeexport.artifact.cases import GoldenAnswers
from edgeexport.errors import EdgeExportError, WeightsError
from edgeexport.method import Method, Weights, draw_all
from edgeexport.runtime.child_process import Report, run_as_child
from edgeexport.runtime.program import Program, open_program
from edgeexport.verify.bench.case import Case
from edgeexport.verify.compare import Comparison

CALIBRATION = 256
"""The calibration loop multiplies square matrices of this size, some milliseconds of them, between
the rounds.
"""


class Call(Protocol):
    """A call that can be made again and again; `load_ms` is what loading its program took, None for
    what is not loaded from a file.
    """

    load_ms: float | None

    def first(self) -> tuple[Any, float]:
        """Its answers, and its latency in ms."""
        ...

    def again(self) -> float:
        """Its latency in ms."""
        ...


@dataclass
class Contender:
    """What is measured."""

    name: str
    call: Call | None
    load_ms: float | None
    error: str | None = None
    first_ms: float = 0.0
    max_abs_relative: float | None = None
    samples_ms: list[float] = field(default_factory=list)


def main(request: dict[str, Any], report: Report) -> dict[str, Any]:
    """The samples of this process's rounds: rows, and the calibration loop's times in ms, none on a
    board.
    """
    torch.set_num_threads(request["threads"])
    programs = {
        a["name"]: open_program(a["path"], request["threads"], a["runner"]) for a in request["artifacts"]
    }
    # This machine's noise says nothing about a board.
    calibration: list[float] | None = None if any(p.runtime.at for p in programs.values()) else []
    rows = []
    for case in _cases(request, next(iter(programs.values()))):
        contenders = list(
            _contenders(case, request["against"], programs, lambda what: report.stage(f"{case.name}: {what}"))
        )
        report.stage(f"{case.name}: measuring")
        _interleave([c for c in contenders if c.error is None], request["rounds"], calibration)
        rows.append(
            {
                "method": case.name,
                "sizes": case.sizes,
                "threads": case.threads,
                "rounds": request["rounds"],
                "contenders": [_samples(contender) for contender in contenders],
            }
        )
    return {"calibration_ms": calibration or [], "rows": rows}


def _cases(request: dict[str, Any], first: Program) -> Iterator[Case]:
    """Every method at every combination of the sizes that were asked for."""
    golden = GoldenAnswers(first.artifact.golden())
    originals = _originals(first, request["model"]) if request["against"] else {}
    for entry in first.manifest.methods:
        if entry.name not in request["methods"]:
            continue
        wanted = [request["sizes"].get(d.name, [d.min]) for d in entry.ranges.values()]
        for combination in itertools.product(*wanted):
            sizes = dict(zip(entry.ranges, combination))
            yield Case(
                entry.name,
                originals.get(entry.name),
                sizes,
                draw_all(entry.inputs, sizes, outputs=golden),
                tuple(s.name for s in entry.state),
                request["threads"],
                Path(request["folder"]),
            )


def _originals(first: Program, named: str | None) -> dict[str, Method]:
    """The methods of the original model by name, with the weights of the artifact.

    Raises WeightsError when the weights are others.
    """
    manifest = first.manifest
    recorded = manifest.weights
    model = catalog.original(manifest.model.asked, named)
    module, loaded = model.load(Weights(recorded.source, recorded.seed, recorded.path))
    if loaded.sha256 != recorded.sha256:
        raise WeightsError(
            f"The weights that {loaded.origin} has now are not those that {first.artifact.name} was built"
            " from."
        )
    dims = {d.name: d for entry in manifest.methods for d in entry.ranges.values()}
    return {method.name: method for method in model.methods(module, dims)}


def _contenders(
    case: Case, against: Sequence[str], programs: Mapping[str, Program], at: Callable[[str], object]
) -> Iterator[Contender]:
    """What there is to measure, each called once.

    One that cannot be prepared or run is a result too, with its error.
    """
    wanted = None if case.state or case.original is None else case.original.answer(*case.inputs)
    makers: dict[str, Callable[[], Call]] = {
        name: lambda name=name: _Timed(
            importlib.import_module(f"edgeexport.verify.bench.against.{name}").prepare(case)
        )
        for name in against
    }
    makers |= {name: partial(_loaded, program, case) for name, program in programs.items()}
    for name, prepare in makers.items():
        at(name)
        try:
            call = prepare()
            contender = Contender(name, call, call.load_ms)
            answers, contender.first_ms = call.first()
        except EdgeExportError:
            raise
        except Exception as error:  # a contender's own, of whatever kind
            said = unstyle(str(error)).strip().partition("\n")[0][:300]  # some write in colours
            yield Contender(name, None, None, f"{type(error).__name__}: {said}")
            continue
        if wanted is not None:
            answers = answers if isinstance(answers, (tuple, list)) else (answers,)
            contender.max_abs_relative = max(
                Comparison.of(a, w).max_abs_relative for a, w in zip(answers, wanted)
            )
        yield contender


def _loaded(program: Program, case: Case) -> Call:
    """A method of an artifact, loaded; the native runner times it itself."""
    start = time.perf_counter()
    method = program[case.name]
    method.load()
    if program.runtime.module == "native":
        method.validate(case.inputs)
        return _TimedByRunner(program.engine, method.name, case.inputs)
    return _Timed(lambda: method(*case.inputs), (time.perf_counter() - start) * 1e3)


class _Timed:
    """A call that is timed around it."""

    def __init__(self, run: Callable[[], Any], load_ms: float | None = None):
        self._run, self.load_ms = run, load_ms

    def first(self) -> tuple[Any, float]:
        start = time.perf_counter()
        answers = self._run()
        return answers, (time.perf_counter() - start) * 1e3

    def again(self) -> float:
        return self.first()[1]


class _TimedByRunner:
    """A call in the native runner, here or on a board, which says itself what it took."""

    def __init__(self, engine, method: str, inputs: Sequence[torch.Tensor]):
        self.load_ms = engine.load_ms(method)
        self._first, self.again = (lambda: engine.call(method, inputs)), engine.again

    def first(self) -> tuple[Any, float]:
        answers, (taken_ms,) = self._first()
        return answers, taken_ms


def _interleave(contenders: Sequence[Contender], rounds: int, calibration: list[float] | None) -> None:
    """Every contender once a round, and the calibration loop where there is one; one round more
    warms up.
    """
    matrix = torch.full((CALIBRATION, CALIBRATION), 1.0 / CALIBRATION)
    for turn in range(rounds + 1):
        samples = [contender.call.again() for contender in contenders if contender.call is not None]
        fixed_ms = [] if calibration is None else [_fixed_loop_ms(matrix)]
        if turn == 0:
            continue
        for contender, sample in zip(contenders, samples):
            contender.samples_ms.append(sample)
        if calibration is not None:
            calibration += fixed_ms


def _fixed_loop_ms(matrix: torch.Tensor) -> float:
    start = time.perf_counter()
    for _ in range(8):
        torch.mm(matrix, matrix)
    return (time.perf_counter() - start) * 1e3


def _samples(contender: Contender) -> dict[str, Any]:
    if contender.error is not None:
        return {"name": contender.name, "error": contender.error}
    return {
        "name": contender.name,
        "load_ms": contender.load_ms,
        "first_ms": contender.first_ms,
        "samples_ms": contender.samples_ms,
        "max_abs_relative": contender.max_abs_relative,
    }


if __name__ == "__main__":
    run_as_child(main)
