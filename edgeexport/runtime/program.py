"""Calls the methods of an artifact; shapes, dtypes and layout are checked before the runtime sees a
tensor.
"""

from __future__ import annotations

import importlib
import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from edgeexport.artifact.folder import Artifact, open_artifact
from edgeexport.artifact.manifest import Case, Manifest, MethodEntry
from edgeexport.errors import InputError, RuntimeFault, UnknownName, UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    import torch


@dataclass(frozen=True)
class Runtime:
    """What runs a program, written `MODULE`, `MODULE@BOARD` (the board is emulated) or
    `MODULE@BOARD=URL` (the board itself, at `ssh://..` or `adb:..`).
    """

    module: str
    board: str = ""
    at: str = ""

    @classmethod
    def of(cls, text: str) -> Runtime:
        found = re.fullmatch(r"([^@]*)(?:@(.*?)(?:=((?:ssh|adb):.*))?)?", text, re.DOTALL)
        assert found is not None, "every text is one of these"
        return cls(*found.groups(default=""))

    def __str__(self) -> str:
        return self.module + (f"@{self.board}" if self.board else "") + (f"={self.at}" if self.at else "")

    @property
    def emulated(self) -> bool:
        return bool(self.board) and not self.at


class Program:
    """The methods of an artifact, loaded when first called.

    `program["encode_image"](image)` or `program.call("encode_image", image)`.
    """

    def __init__(
        self,
        artifact: Artifact,
        threads: int | None = None,
        runtime: str | None = None,
        board: str = "",
        methods: Sequence[str] = (),
    ):
        self.artifact = artifact
        self.runtime = runtime_of(artifact, runtime)
        self.board = board
        self._wanted = tuple(methods)
        self._methods: dict[str, ProgramMethod] = {}
        if threads is not None:
            _set_threads(self.runtime, threads)

    @property
    def manifest(self) -> Manifest:
        return self.artifact.manifest

    @property
    def methods(self) -> tuple[str, ...]:
        """The names of the methods, or of those that it was opened for."""
        return self._wanted or tuple(self.artifact.methods)

    @property
    def emulated(self) -> bool:
        """Whether it runs in an emulator, where a call takes some hundred times longer."""
        return self.runtime.emulated

    def cases(self, name: str) -> tuple[Case, ...]:
        """The recorded cases of a method; in an emulator the least only."""
        return self.artifact.methods[name].cases[: 1 if self.emulated else None]

    def __getitem__(self, name: str) -> ProgramMethod:
        if name not in self.artifact.methods:
            raise UnknownName("method", name, self.artifact.methods)
        if name not in self._methods:
            self._methods[name] = ProgramMethod(self, self.artifact.methods[name])
        return self._methods[name]

    def call(self, name: str, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Run a method.

        Raises InputError for a tensor that the manifest does not allow, RuntimeFault from the
        runtime.
        """
        return self[name](*tensors)

    def session(self) -> Program:
        """The same loaded program with a state of its own (a key-value cache): another
        conversation, on the same weights.

        Raises UsageError where the state is inside the program, as in a `.pte`: open the artifact
        again for another.
        """
        if self.state is None:
            raise UsageError(
                f"{self.artifact.program_path.name} holds its state inside: open it again for another"
                " conversation."
            )
        other = Program(self.artifact)
        other.engine = self.engine
        return other

    def prepare(self) -> None:
        """Import the runtime itself, so that what comes next takes its own time only."""
        _module(self.runtime).prepare()

    @cached_property
    def engine(self):
        """The runtime that this kind of program needs, with the program loaded.

        Raises RuntimeFault when it does not load.
        """
        where = (self.runtime.board, self.runtime.at) if self.runtime.board else ()
        return _module(self.runtime).Engine(self.artifact, *where)

    @cached_property
    def state(self) -> dict[str, torch.Tensor] | None:
        """What calls change, by name; None where the runtime holds it."""
        return self.engine.new_state()

    def state_of(self, method: str) -> tuple[torch.Tensor, ...]:
        """The part of the state that a method takes and writes, in its order; empty where the
        runtime holds it.
        """
        if self.state is None:
            return ()
        return tuple(self.state[s.name] for s in self.artifact.methods[method].state)


class ProgramMethod:
    """One method: checks its inputs against the manifest, runs, returns copies of the outputs."""

    def __init__(self, program: Program, entry: MethodEntry):
        self.name = entry.name
        self.inputs = entry.inputs
        self.outputs = tuple(o.name for o in entry.outputs)
        self.dims = entry.ranges
        self._program = program

    @cached_property
    def _loaded(self):
        return self._program.engine.method(self.name)

    def load(self) -> None:
        """Load now rather than at the first call."""
        _ = self._loaded

    def __call__(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        self.validate(tensors)
        return self.execute(tensors)

    def execute(self, tensors: Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...]:
        """Run without checking the inputs: what an app without this wrapper would do."""
        try:
            return tuple(self._loaded((*tensors, *self._program.state_of(self.name))))
        except (RuntimeError, ValueError) as error:
            raise RuntimeFault(f"'{self.name}' failed in the runtime ({error}).") from error

    def validate(self, tensors: Sequence[torch.Tensor]) -> None:
        """Hold tensors against the manifest: count, dtype, rank, sizes, ranges of dynamic
        dimensions and of whole numbers, layout.

        The runtime checks dtype, rank and the total of elements only; a channels_last tensor it
        accepts, and answers wrongly. Raises InputError.
        """
        import torch

        if len(tensors) != len(self.inputs):
            names = ", ".join(i.name for i in self.inputs)
            raise InputError(
                f"'{self.name}' takes {len(self.inputs)} tensors ({names}); {len(tensors)} were given."
            )
        sizes: dict[str, tuple[int, str]] = {}
        for spec, tensor in zip(self.inputs, tensors):
            where = f"'{spec.name}' of '{self.name}'"
            if not isinstance(tensor, torch.Tensor):
                raise InputError(f"{where} must be a torch.Tensor, not {type(tensor).__name__}.")
            if tensor.dtype != getattr(torch, spec.dtype):
                raise InputError(
                    f"{where} must be {spec.dtype}, not {str(tensor.dtype).removeprefix('torch.')}: convert"
                    f" with .to(torch.{spec.dtype})."
                )
            if tensor.dim() != len(spec.shape):
                raise InputError(
                    f"{where} must have {len(spec.shape)} dimensions {list(spec.shape)}, not"
                    f" {list(tensor.shape)}."
                )
            for axis, (wanted, size) in enumerate(zip(spec.shape, tensor.shape)):
                self._validate_size(where, spec, axis, wanted, size, sizes)
            self._validate_values(where, spec, tensor, sizes)
            if not tensor.is_contiguous():
                raise InputError(
                    f"{where} must be contiguous; its strides are {list(tensor.stride())} (an image permuted"
                    " from HWC is channels_last): call .contiguous() first. The runtime would accept it and"
                    " answer wrongly."
                )

    @staticmethod
    def _validate_values(where: str, spec, tensor: torch.Tensor, sizes: dict) -> None:
        """Whole numbers are indices or labels: one outside its range reads other memory, or
        nonsense.
        """
        if spec.range is None or tensor.is_floating_point() or not tensor.numel():
            return
        import torch

        least, most = (int(v) for v in torch.aminmax(tensor))
        if spec.first_of in sizes and most <= spec.range[1] < most + sizes[spec.first_of][0] - 1:
            raise InputError(
                f"{where} holds {most}, the first of {sizes[spec.first_of][0]} {spec.first_of}; the last may"
                f" be at {spec.range[1]:g}."
            )
        if least < spec.range[0] or most > spec.range[1]:
            raise InputError(
                f"{where} holds {least if least < spec.range[0] else most}; it takes {spec.range[0]:g} to"
                f" {spec.range[1]:g}."
            )

    def _validate_size(self, where: str, spec, axis: int, wanted, size: int, sizes: dict) -> None:
        if isinstance(wanted, int):
            if size != wanted:
                raise InputError(
                    f"{where} must have size {wanted} in dimension {axis}, not {size}; its shape is"
                    f" {list(spec.shape)}."
                )
            return
        dim = self.dims[wanted]
        if not dim.min <= size <= dim.max:
            raise InputError(
                f"{where} has {wanted} = {size} in dimension {axis}; this program takes {dim.min} to"
                f" {dim.max}."
            )
        seen = sizes.setdefault(wanted, (size, spec.name))
        if seen[0] != size:
            raise InputError(
                f"{where} has {wanted} = {size}, but '{seen[1]}' has {seen[0]}: they must be equal."
            )


def open_program(
    path: str | Path,
    threads: int | None = None,
    runtime: str | None = None,
    board: str = "",
    methods: Sequence[str] = (),
) -> Program:
    """Open an artifact (its folder, an archive, or ARCHIVE/NAME) and verify its hashes; `threads`
    sets the runtime's thread pool, before anything is loaded.

    `runtime` is one of its target's runtimes: `native` runs a `.pte` in a process of the
    C++ runtime, as an app does, `native@BOARD` does so on an emulated board, `native@BOARD=URL` on
    the board itself. `board` is what its checks hold it against, `methods` those that they run
    (default: all). Raises ArtifactError, or UsageError when the thread count would change after a
    program was loaded.
    """
    return Program(open_artifact(path), threads, runtime, board, methods)


def runtime_of(artifact: Artifact, wanted: str | None) -> Runtime:
    """`wanted`, or the default, if it runs this kind of program. Raises UsageError."""
    known = artifact.target.runtimes
    if not known:
        raise UsageError(f"Programs for {artifact.target.name} do not run on this kind of machine.")
    runtime = Runtime.of(wanted or known[0])
    if runtime.module not in known or (runtime.board and runtime.module != "native"):
        raise UsageError(
            f"{artifact.program_path.name} does not run with '{wanted}'. It runs with: {', '.join(known)}."
        )
    return runtime


def ready(artifact: Artifact, wanted: str | None) -> Runtime:
    """`runtime_of`, with what the runtime needs here, or on the device, made ready.

    Raises UsageError for what is missing, RuntimeFault from a device.
    """
    runtime = runtime_of(artifact, wanted)
    if runtime.module == "native":
        _module(runtime).make_ready(artifact, runtime.board, runtime.at)
    return runtime


def _set_threads(runtime: Runtime, count: int) -> None:
    """Set the threads of a runtime. Raises UsageError."""
    if count < 1:
        raise UsageError(f"The number of threads must be at least 1, not {count}.")
    _module(runtime).set_threads(count)


def _module(runtime: Runtime):
    """The module of this package that is a runtime."""
    return importlib.import_module(f"edgeexport.runtime.{runtime.module}")
