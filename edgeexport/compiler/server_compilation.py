"""Programs → one multi-model `.pt2` of AOTInductor: a compiled library a method, weights stored
once, inputs checked.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.export.pt2_archive._package_weights import Weights

from edgeexport.artifact.manifest import Compiled
from edgeexport.artifact.program_state import lift_state, mutated_buffers
from edgeexport.compiler.backend_guards import no_backend_guards
from edgeexport.compiler.rewrite import Pass
from edgeexport.errors import LoweringError, UsageError
from edgeexport.runtime.cpu_isa import CpuIsa


@dataclass(frozen=True)
class ServerRecipe:
    """How programs become a `.pt2` for a device at one precision."""

    name: str
    precision: str
    passes: tuple[Pass, ...]
    device: str
    isa: CpuIsa
    inductor: Mapping[str, Any]
    inductor_for_images: Mapping[str, Any]
    inductor_for_state: Mapping[str, Any]

    @property
    def settings(self) -> dict[str, Any]:
        """What the manifest keeps: the device, the CPU flags without which the package must not be
        loaded, and Inductor's settings.
        """
        return {
            "device": self.device,
            "cpu_isa": asdict(self.isa),
            "inductor": self._inductor(),
            "inductor_for_images": dict(self.inductor_for_images),
            "inductor_for_state": dict(self.inductor_for_state),
        }

    def require(self) -> None:
        """Raises UsageError for what this machine lacks, before any work."""
        if self.device == "cuda" and not torch.cuda.is_available():
            raise UsageError(
                "--device cuda: this PyTorch sees no GPU. Build where it does, or without --device for the"
                " CPU."
            )
        compiler = os.environ.get("CXX", "g++")
        if shutil.which(compiler) is None:
            raise UsageError(
                f"AOTInductor needs a C++ compiler, and '{compiler}' is not there. Install it (Debian: apt"
                " install g++), or name one in CXX."
            )

    def emit(
        self,
        programs: Mapping[str, ExportedProgram],
        path: Path,
        constants: Mapping[str, str] = MappingProxyType({}),
    ) -> dict[str, Compiled]:
        """Compile `programs`, write them to `path`, and say per method what that took.

        Raises LoweringError; for `constants` too, which a package has no place for.
        """
        if constants:
            raise LoweringError(f"A package holds no constants: {', '.join(constants)}.")
        from torch._inductor.package.package import package_aoti
        from torch._inductor.utils import fresh_cache

        state = mutated_buffers(programs.values())
        files, compiled = {}, {}
        with (
            tempfile.TemporaryDirectory() as folder,
            fresh_cache(dir=folder),
            no_backend_guards(),
            _checks_in_the_library(),
            _any_threads(),
            _any_batch(),
        ):
            for name, program in programs.items():
                start = time.perf_counter()
                settings = {**self._inductor(), **self._for_images(program), **self._for_state(program)}
                files[name] = self._compile(name, lift_state(program, state), settings)
                compiled[name] = Compiled(
                    round(time.perf_counter() - start, 2),
                    sum(os.path.getsize(f) for f in files[name] if isinstance(f, str)),
                )
            package_aoti(str(path), files)
        return compiled

    def _compile(self, name: str, program: ExportedProgram, settings: dict[str, Any]) -> list:
        """One method: its library, metadata and weights (the sources stay behind, they hold paths
        of this machine).
        """
        from torch._inductor import aot_compile

        if self.device != "cpu":
            from torch.export.passes import move_to_device_pass

            program = move_to_device_pass(program, self.device)
        assert program.example_inputs is not None, "captured with them"
        args, kwargs = program.example_inputs
        try:
            files: Any = aot_compile(program.module(check_guards=False), args, kwargs, options=settings)
        except (
            Exception
        ) as error:  # Inductor raises its own errors, the compiler's and those of tracing alike
            raise LoweringError(
                f"AOTInductor refused '{name}' ({type(error).__name__}: {str(error)[:2000]})."
            ) from error
        return [
            _plain(f) if isinstance(f, Weights) else f
            for f in files
            if isinstance(f, Weights) or not f.endswith(".cpp")
        ]

    def _inductor(self) -> dict[str, Any]:
        wide = (
            {}
            if self.isa.vector_bits is None
            else {"cpp.simdlen": self.isa.vector_bits, "cpp.march": self.isa.name}
        )
        return {**self.inductor, **wide}

    def _for_images(self, program: ExportedProgram) -> Mapping[str, Any]:
        """`inductor_for_images`, if the program has a two-dimensional convolution: attention has
        four dimensions too, and none of them are channels.
        """
        convolves = any(node.target is torch.ops.aten.conv2d.default for node in program.graph.nodes)
        return self.inductor_for_images if convolves else {}

    def _for_state(self, program: ExportedProgram) -> Mapping[str, Any]:
        """`inductor_for_state`, if calls of the program change its buffers."""
        return self.inductor_for_state if mutated_buffers([program]) else {}


def _plain(weights: Weights) -> Weights:
    """The same weights as tensors: libtorch's unpickler knows no parameters."""
    return Weights({name: (tensor.detach(), properties) for name, (tensor, properties) in weights.items()})


@contextlib.contextmanager
def _any_threads() -> Iterator[None]:
    """Within this, loops are compiled for as many threads as the server will have.

    Inductor writes PyTorch's number of threads into each parallel loop, unless that is the number
    of CPUs. (`cpp.dynamic_threads` does it too, but makes every small loop parallel, and an index
    out of range in a parallel loop ends the process.)
    """
    before = torch.get_num_threads()
    torch.set_num_threads(os.cpu_count() or 1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextlib.contextmanager
def _any_batch() -> Iterator[None]:
    """Within this, loops are parallel at every size of a dynamic dimension.

    Inductor makes as many of the outer loops parallel as occupy its threads at the sizes of the
    example. With an example of two and two threads that is the loop over the batch alone, and at
    batch 1 nothing is parallel. Here sizes that are known only later count as 1.
    """
    from torch._inductor import config as inductor
    from torch._inductor.codegen import cpp
    from torch._inductor.virtualized import V

    kernel: Any = cpp.CppKernel
    original = kernel.decide_parallel_depth

    def decide(self, most, threads: int):
        depth, known, work = 0, 1, self.size_hint() // threads
        for size in self.call_ranges[most.start_depth : most.start_depth + most.parallel_depth]:
            if known == threads or known >= 2 * threads or work < inductor.cpp.min_chunk_size:
                break
            depth += 1
            known *= int(size) if size.is_number else 1
            work /= V.graph.sizevars.optimization_hint(size, fallback=8192)
        return cpp.ParallelDepth(parallel_depth=depth, start_depth=most.start_depth)

    kernel.decide_parallel_depth = decide
    try:
        yield
    finally:
        kernel.decide_parallel_depth = original


_CHECKED_ON_REQUEST = "env_var_value != nullptr && env_var_value[0] != '0'"
_CHECKED = "env_var_value == nullptr || env_var_value[0] != '0'"
_FIRST_LINE = "__check_inputs_outputs(input_handles, output_handles);"
_WEIGHTS_THERE = """
if (constants_) for (const auto& constant : *constants_) if (!constant.get()) throw std::runtime_error(
    "the weights of this package are not loaded: use edgeexport.open, or load_pt2(..., load_weights_from_disk=True)");
"""  # noqa: E501


@contextlib.contextmanager
def _checks_in_the_library() -> Iterator[None]:
    """Within this, a compiled library checks its inputs unless AOTI_RUNTIME_CHECK_INPUTS=0, and
    says so where its weights are missing.

    As torch emits it, it checks only with AOTI_RUNTIME_CHECK_INPUTS=1: a wrong size, a batch above
    the greatest and float64 "succeed" otherwise; and without weights it ends the process. There is
    no setting for either, so the emitted text is changed.
    """
    from torch._inductor.codegen.cpp_wrapper_cpu import CppWrapperCpu

    original = CppWrapperCpu._write_aoti_entry_point_signature

    def checked(self) -> None:
        original(self)
        _replace(self.prefix, _CHECKED_ON_REQUEST, _CHECKED)
        _replace(self.prefix, _FIRST_LINE, _WEIGHTS_THERE + _FIRST_LINE)

    CppWrapperCpu._write_aoti_entry_point_signature = checked
    try:
        yield
    finally:
        CppWrapperCpu._write_aoti_entry_point_signature = original


def _replace(buffer, old: str, new: str) -> None:
    """Replace `old` in the one emitted line that has it.

    Raises LoweringError where torch no longer emits it so.
    """
    places = [i for i, line in enumerate(buffer._lines) if isinstance(line, str) and old in line]
    if len(places) != 1:
        raise LoweringError(
            f"This torch ({torch.__version__}) emits other input checks than torch 2.13: '{old}' is there"
            f" {len(places)} times."
        )
    buffer._lines[places[0]] = buffer._lines[places[0]].replace(old, new)
