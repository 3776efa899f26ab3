"""Calls of a model's methods on a user's own data: photos, sounds and clips through the model's
pipeline, or tensors as they are.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch

from edgeexport import pipelines
from edgeexport.errors import InputError, UsageError
from edgeexport.method import Dim, Method, Model
from edgeexport.pipelines.media.made_samples import options_of

TENSORS = ".safetensors"


@dataclass
class FolderCalls:
    """The inputs of each call, by method, and the files that could not be used, with the reason."""

    calls: dict[str, list[tuple[torch.Tensor, ...]]] = field(default_factory=dict)
    skipped: list[str] = field(default_factory=list)


def folder_calls(folder: Path, model: Model, methods: Mapping[str, Method]) -> FolderCalls:
    """What the original model's methods are called with for each entry of a folder, in the order of
    their names: what the model's first pipeline makes of a photo, a sound or a clip, with the
    original's own answers fed back; or the inputs of one method in a safetensors file, by their
    names.

    An entry that cannot be read is skipped. Raises UsageError where nothing can be used.
    """
    found = FolderCalls()
    for path in sorted(p for p in folder.iterdir() if not p.name.startswith(".")):
        recorder = _Recorder(model, methods)
        try:
            recorder.read(path)
        except (InputError, UsageError) as error:
            found.skipped.append(f"{path.name}: {error}")
            continue
        for name, calls in recorder.calls.items():
            found.calls.setdefault(name, []).extend(calls)
    if not found.calls:
        why = f" The first: {found.skipped[0]}" if found.skipped else " It is empty."
        raise UsageError(f"--calibration {folder}: nothing in it can be used.{why}")
    return found


class _Recorder:
    """Stands in for a program: the original model answers, and what it was asked is kept."""

    def __init__(self, model: Model, methods: Mapping[str, Method]):
        self.manifest = SimpleNamespace(
            model=model, prepare=model.prepare, target="original", precision="fp32", weights=_WEIGHTS
        )
        self.artifact = SimpleNamespace(tokenizer=lambda: None, text_note=None)
        self.calls: dict[str, list[tuple[torch.Tensor, ...]]] = {}
        self._model, self._methods = model, methods

    def __getitem__(self, name: str) -> _Recorded:
        return _Recorded(self._methods[name], self.calls.setdefault(name, []))

    def read(self, path: Path) -> None:
        """Call the methods with what a file or a folder holds. Raises InputError, UsageError."""
        if path.suffix == TENSORS:
            name, inputs = _tensors(path, self._methods)
            self[name](*inputs)
        elif not self._model.pipelines:
            raise UsageError(
                f"{self._model.name} has no pipeline that reads it: give the inputs of a method as {TENSORS}."
            )
        else:
            pipeline = pipelines.pipeline(self._model.pipelines[0])
            (read, *_) = (option.name for option in pipeline.options if option.kind == "file")
            with tempfile.TemporaryDirectory() as scratch:
                options, written = options_of(pipeline, Path(scratch), {read: str(path)})
                pipeline.run(self, **{name: options[name] for name in options.keys() - written.keys()})


_WEIGHTS = SimpleNamespace(random=False, origin="the original")


@dataclass(frozen=True)
class _Recorded:
    """One method of the original, as pipelines call it."""

    method: Method
    calls: list[tuple[torch.Tensor, ...]]

    @property
    def dims(self) -> dict[str, Dim]:
        return {dim.name: dim for dim in self.method.dims}

    def __call__(self, *tensors: torch.Tensor) -> tuple[Any, ...]:
        self.calls.append(tuple(tensor.clone() for tensor in tensors))
        return self.method.answer(*tensors)


def _tensors(path: Path, methods: Mapping[str, Method]) -> tuple[str, Sequence[torch.Tensor]]:
    """The method whose inputs a file holds, and these in order. Raises InputError."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        held = load_file(path)
    except (OSError, SafetensorError) as error:
        raise InputError(f"it cannot be read ({error})") from error
    for name, method in methods.items():
        if {spec.name for spec in method.inputs} == held.keys():
            for spec in method.inputs:
                given = held[spec.name]
                if str(given.dtype) != f"torch.{spec.dtype}" or given.dim() != len(spec.shape):
                    raise InputError(
                        f"'{spec.name}' is {given.dtype} {tuple(given.shape)}; '{name}' takes {spec.dtype}"
                        f" {spec.shape}"
                    )
            return name, [held[spec.name] for spec in method.inputs]
    takes = "; ".join(f"'{name}': {', '.join(i.name for i in m.inputs)}" for name, m in methods.items())
    raise InputError(f"it holds {', '.join(held) or 'nothing'}, which no method takes ({takes})")
