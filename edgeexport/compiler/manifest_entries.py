"""What the compiler knows of a build, as the manifest keeps it."""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from importlib import metadata

from edgeexport.artifact.cases import RecordedCases
from edgeexport.artifact.manifest import (
    CaptureFacts,
    Compiled,
    Delegation,
    DimEntry,
    InputEntry,
    MemoryForecast,
    MethodEntry,
    OutputEntry,
    PassReport,
    StateEntry,
)
from edgeexport.compiler.capture import Captured
from edgeexport.method import Method, Quality, Tolerance

PACKAGES = (
    "edgeexport",
    "torch",
    "torchvision",
    "executorch",
    "transformers",
    "torchao",
    "ultralytics",
    "timm",
)
"""Whose versions are recorded."""


def entry(
    method: Method,
    captured: Captured,
    forecast: MemoryForecast,
    recorded: RecordedCases,
    reports: Sequence[PassReport],
    emitted: Delegation | Compiled,
    tolerance: Tolerance,
    quality: Quality | None,
) -> MethodEntry:
    """What the manifest says of a method before it is checked."""
    return MethodEntry(
        name=method.name,
        inputs=tuple(InputEntry.of(spec) for spec in method.inputs),
        outputs=tuple(
            OutputEntry(**vars(spec), dtype=dtype, shape_at_least=shape)
            for spec, (dtype, shape) in zip(method.outputs, recorded.outputs[method.name])
        ),
        dims=tuple(DimEntry(d.name, (d.min, d.max)) for d in method.dims),
        state=_state(captured),
        capture=CaptureFacts(captured.mode, captured.strict_failure),
        passes=tuple(reports),
        delegation=emitted if isinstance(emitted, Delegation) else None,
        compiled=emitted if isinstance(emitted, Compiled) else None,
        forecast=forecast,
        planned_memory_bytes=None,
        planned_limit_bytes=method.planned_limit_bytes,
        tolerance=tolerance,
        quality=quality,
        cases=recorded.cases[method.name],
    )


def _state(captured: Captured) -> tuple[StateEntry, ...]:
    """The buffers that a call changes and a later call sees, with the dtype and shape of each."""
    program = captured.program
    tensors = {
        name: program.state_dict.get(name, program.constants.get(name))
        for name in program.graph_signature.buffers_to_mutate.values()
    }
    return tuple(
        StateEntry(n, str(t.dtype).removeprefix("torch."), tuple(t.shape)) for n, t in sorted(tensors.items())
    )


def weight_bytes(methods: Sequence[Method]) -> int:
    """Bytes of the distinct parameters of all methods: what an fp32 file cannot be smaller than."""
    parameters = {p.data_ptr(): p.numel() * p.element_size() for m in methods for p in m.module.parameters()}
    return sum(parameters.values())


def versions() -> Mapping[str, str]:
    """The machine's system and the versions of PACKAGES."""
    found = {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "machine": platform.machine(),
    }
    for package in PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            found[package] = "not installed"
    return found
