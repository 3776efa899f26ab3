"""What one replica does: calls of all its requests, batched where the program can, one at a time on
the cores it has.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import torch

from edgeexport.artifact.cases import GoldenAnswers, case_calls
from edgeexport.errors import InputError
from edgeexport.runtime.program import Program, ProgramMethod
from edgeexport.verify.compare import Comparison

PIPELINES = 8
"""Pipelines that a replica has under way at once: enough that their calls meet in a batch."""


@dataclass(frozen=True)
class Call:
    """One request's tensors for a method, and how many rows of the batch they are."""

    tensors: tuple[torch.Tensor, ...]
    rows: int

    @property
    def kind(self) -> tuple:
        """Calls of one kind can be one call: they differ in nothing but the size of the batch."""
        return tuple(tuple(t.shape[1:]) for t in self.tensors)


class Worker:
    """Runs the methods of a program for many requests at once.

    `batching(method, most, call)` wraps a function of a list of calls as one of a single call (Ray
    Serve's `batch`).
    """

    def __init__(
        self, program: Program, batching: Callable[[str, int, Callable], Callable[[Call], Awaitable]] | None
    ):
        self.program = program
        self._compute = ThreadPoolExecutor(
            1, thread_name_prefix="compute"
        )  # the program uses all cores of the replica by itself
        self._pipelines = ThreadPoolExecutor(PIPELINES, thread_name_prefix="pipeline")
        self._batched: dict[str, Callable[[Call], Awaitable]] = {}
        for name in program.methods:
            program[name].load()
            most = batch_limit(program, name)
            if batching is not None and most > 1 and rows_are_independent(program, name):
                self._batched[name] = batching(name, most, self._function_of(name, most))

    @property
    def batched(self) -> tuple[str, ...]:
        """The methods whose requests meet in a batch."""
        return tuple(self._batched)

    async def call(
        self, name: str, tensors: Sequence[torch.Tensor], session: Program | None = None
    ) -> tuple[torch.Tensor, ...]:
        """One request's call; with a `session`, on its state.

        Raises InputError before it waits, RuntimeFault.
        """
        method = self.program[name]
        method.validate(tensors)
        if session is None and name in self._batched:
            return await self._batched[name](Call(tuple(tensors), tensors[0].shape[0]))
        target = (session or self.program)[name]
        return await asyncio.get_running_loop().run_in_executor(self._compute, target.execute, tuple(tensors))

    async def run(self, pipeline: Callable[..., dict], options: Mapping[str, Any]) -> dict:
        """A whole pipeline in a thread of its own, with a state of its own; its calls meet those of
        other requests.
        """
        loop = asyncio.get_running_loop()
        view = _View(self, self.program.session(), loop)
        return await loop.run_in_executor(self._pipelines, lambda: pipeline(view, **options))

    def _function_of(self, name: str, most: int) -> Callable[[list[Call]], Awaitable[list]]:
        async def call_all(calls: list[Call]) -> list:
            return await asyncio.get_running_loop().run_in_executor(
                self._compute, run_together, self.program[name], calls, most
            )

        return call_all


class _View:
    """The program as a pipeline sees it, in a thread: its calls go through the worker's event
    loop.
    """

    def __init__(self, worker: Worker, session: Program, loop: asyncio.AbstractEventLoop):
        self._worker, self._session, self._loop = worker, session, loop
        self.artifact, self.manifest, self.methods = session.artifact, session.manifest, session.methods

    def __getitem__(self, name: str) -> Callable[..., tuple[torch.Tensor, ...]]:
        state = self._session if self.artifact.methods[name].state else None

        def call(*tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
            return asyncio.run_coroutine_threadsafe(
                self._worker.call(name, tensors, state), self._loop
            ).result()

        return call

    def call(self, name: str, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return self[name](*tensors)


def batch_limit(program: Program, name: str) -> int:
    """The greatest batch of a method whose every input has the dimension `batch` first, and that
    has no state; else 1.
    """
    method = program[name]
    if "batch" not in method.dims or program.artifact.methods[name].state:
        return 1
    return method.dims["batch"].max if all(i.shape[:1] == ("batch",) for i in method.inputs) else 1


def rows_are_independent(program: Program, name: str) -> bool:
    """Whether a batch of one input repeated answers what the input alone does, row by row: tried
    once, before any request is taken.
    """
    method, entry = program[name], program.artifact.methods[name]
    golden = GoldenAnswers(program.artifact.golden())
    inputs = case_calls(entry.cases[0], program, method, golden)[1]
    single = Call(inputs, inputs[0].shape[0])
    if 2 * single.rows > method.dims["batch"].max:
        return False
    alone, together = method.execute(inputs), run_together(method, [single, single], method.dims["batch"].max)
    limits = entry.tolerance.max_abs_relative, entry.tolerance.min_sqnr_db
    return all(
        part.shape == want.shape and Comparison.of(part, want).within(*limits)
        for answers in together
        for part, want in zip(answers, alone)
    )


def run_together(method: ProgramMethod, calls: list[Call], most: int) -> list:
    """Answers to `calls` in their order: those of a kind as one call of at most `most` rows; an
    exception in place of a failed answer.
    """
    answers: list[Any] = [None] * len(calls)
    for group in grouped(calls, most):
        try:
            together = method.execute([torch.cat(parts) for parts in zip(*(calls[i].tensors for i in group))])
            for index, parts in zip(group, split(together, [calls[i].rows for i in group])):
                answers[index] = parts
        except Exception as error:  # each of these requests gets it as its answer
            for index in group:
                answers[index] = error
    return answers


def grouped(calls: list[Call], most: int) -> list[list[int]]:
    """Indices of calls that can be one call: of a kind, at most `most` rows together."""
    open_groups: dict[tuple, tuple[list[int], int]] = {}
    groups: list[list[int]] = []
    for index, call in enumerate(calls):
        group, rows = open_groups.get(call.kind, ([], most))
        if rows + call.rows > most:
            group, rows = [], 0
            groups.append(group)
        group.append(index)
        open_groups[call.kind] = (group, rows + call.rows)
    return groups


def split(tensors: Sequence[torch.Tensor], rows: list[int]) -> list[tuple[torch.Tensor, ...]]:
    """Outputs of a batch, request by request.

    An output may have several rows for one of the input (heads first); they follow one another.
    """
    total = sum(rows)
    for tensor in tensors:
        if tensor.shape[0] % total:
            raise InputError(f"an output of {list(tensor.shape)} cannot be divided among {total} rows")
    pieces = [tensor.split([tensor.shape[0] // total * r for r in rows]) for tensor in tensors]
    return [tuple(piece.clone() for piece in parts) for parts in zip(*pieces)]
