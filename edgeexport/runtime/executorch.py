"""Runs a `.pte` with ExecuTorch's Python bindings."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgeexport.artifact.folder import Artifact
from edgeexport.artifact.light_executorch import light_executorch
from edgeexport.errors import RuntimeFault, UsageError

if TYPE_CHECKING:
    import torch

_threads: int | None = None


class Engine:
    """A loaded `.pte`. Its state, where it has one, is inside: one conversation at a time."""

    def __init__(self, artifact: Artifact, record_events: bool = False):
        """With `record_events` every operator is timed, which makes calls slower.

        Raises RuntimeFault when the file does not load, UsageError for more than one data file,
        which these bindings do not take.
        """
        if len(artifact.data_paths) > 1:
            raise UsageError(
                f"{artifact.program_path.name} has {len(artifact.data_paths)} data files, and Python's"
                " runtime takes one. Use the native runner."
            )
        _note_loaded()
        try:
            self._program = _runtime().load_program(
                artifact.program_path,
                enable_etdump=record_events,
                data_path=next(iter(artifact.data_paths), None),
            )
        except (RuntimeError, ValueError) as error:
            raise RuntimeFault(f"The runtime cannot load {artifact.program_path} ({error}).") from error

    def method(self, name: str) -> Callable[[Sequence[torch.Tensor]], Sequence[torch.Tensor]]:
        """A method, loaded. Raises RuntimeFault."""
        try:
            loaded: Any = self._program.load_method(name)
        except (RuntimeError, ValueError) as error:
            raise RuntimeFault(f"The runtime cannot load the method '{name}' ({error}).") from error
        return lambda tensors: loaded.execute(list(tensors))

    def registry(self) -> tuple[frozenset[str], frozenset[str]]:
        """The names of the operators and the backends that the runtime has."""
        runtime = _runtime()
        return frozenset(runtime.operator_registry.operator_names), frozenset(
            runtime.backend_registry.registered_backend_names
        )

    def write_events(self, path: Path) -> None:
        """Write what was recorded so far, as an ETDump."""
        # The second file is for the values of tensors, which are not recorded: nothing is written
        # to it.
        self._program.write_etdump_result_to_file(str(path), str(path.with_suffix(".values")))

    def threads(self) -> int:
        """The threads that the runtime computes with."""
        return _bindings()._threadpool_get_thread_count()

    def new_state(self) -> None:
        """There is none to give: it is inside."""


def prepare() -> None:
    """Import the bindings, and PyTorch with them."""
    _runtime()


def set_threads(count: int) -> None:
    """Set the runtime's threads, once: changing them after a method was loaded corrupts the heap.

    Raises UsageError.
    """
    global _threads
    if _threads is not None and _threads != count:
        raise UsageError(
            f"The runtime already runs with {_threads or 'its own number of'} threads: use a new process for"
            f" {count}."
        )
    if _threads is None:
        _bindings()._unsafe_reset_threadpool(count)
        _threads = count


def _runtime():
    with light_executorch():
        from executorch.runtime import Runtime

        return Runtime.get()


def _bindings():
    with light_executorch():
        from executorch.extension.pybindings import portable_lib

        return portable_lib


def _note_loaded() -> None:
    """From the first load on, the thread pool stays as it is."""
    global _threads
    if _threads is None:
        _threads = 0
