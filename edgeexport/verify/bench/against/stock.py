"""Stock ExecuTorch, as the tutorials lower: `to_edge_transform_and_lower` with
`XnnpackPartitioner()`, nothing else.
"""

from __future__ import annotations

from collections.abc import Callable

from edgeexport.verify.bench.case import Case


def require() -> None:
    """It needs nothing more."""


def prepare(case: Case) -> Callable[[], object]:
    """The `.pte`, lowered once for all thread counts."""
    from executorch.runtime import Runtime

    path = case.folder / f"stock-{case.method.name}.pte"
    if not path.exists():
        _lower(case, path)
    program = Runtime.get().load_program(path)
    method = program.load_method("forward")
    if method is None:
        raise RuntimeError(f"{path.name} has no method 'forward'")
    return lambda program=program: method.execute(list(case.inputs))


def _lower(case: Case, path) -> None:
    from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
    from executorch.exir import to_edge_transform_and_lower

    lowered = to_edge_transform_and_lower(case.program(), partitioner=[XnnpackPartitioner()]).to_executorch()
    with open(path, "wb") as file:
        lowered.write_to_file(file)
