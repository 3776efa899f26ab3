"""Manifests of programs that are not there."""

from edgeexport.artifact.manifest import (
    FORMAT,
    CaptureFacts,
    DimEntry,
    Manifest,
    MethodEntry,
    ModelFacts,
    RecipeFacts,
    Timings,
    WeightsFacts,
)
from edgeexport.method import Source, Tolerance


def manifest_of(prepare, *methods, name="fake", target="xnnpack", source="random", seed=0, origin=None):
    """A manifest with the facts `prepare`, and methods of these names whose batch goes from 1 to
    2.
    """
    return Manifest(
        format=FORMAT,
        created="2026-01-01T00:00:00+00:00",
        model=ModelFacts(name, name, "Stands for a model.", Source("nowhere", "0", "MIT")),
        target=target,
        precision="fp32",
        program=f"{name}.pte",
        weights=WeightsFacts(source, seed, None, "0" * 64, origin, 0),
        recipe=RecipeFacts(target, "fp32", (), {}),
        versions={},
        files={},
        methods=tuple(map(method_of, methods)),
        prepare=prepare,
        findings=(),
        timings=Timings((), 0.0, 0),
    )


def method_of(name, **facts):
    """A method without tensors, but for `facts`."""
    without = {
        "inputs": (),
        "outputs": (),
        "dims": (DimEntry("batch", (1, 2), (1, 2)),),
        "state": (),
        "capture": CaptureFacts("strict", None),
        "passes": (),
        "delegation": None,
        "compiled": None,
        "planned_memory_bytes": None,
        "planned_limit_bytes": None,
        "tolerance": Tolerance(1e-5, 90.0, "none is asked"),
        "cases": (),
    }
    return MethodEntry(name=name, **without | facts)
