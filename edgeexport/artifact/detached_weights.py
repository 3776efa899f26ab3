"""A `.pte` apart: a small program, and its weights by name, for data files (`.ptd`) that other
programs can share.

ExecuTorch finds what is not in a program by name in the data files that it is loaded with
(docs/source/ptd-file-format.md there). The weights of XNNPACK's delegates have a hash of their
content for a name already; constants of the program get one.
"""

from __future__ import annotations

import math
from collections import defaultdict
from typing import TYPE_CHECKING, Any

from edgeexport.artifact.light_executorch import light_executorch
from edgeexport.artifact.pte import DTYPES
from edgeexport.artifact.pte_segments import ProgramFile, Weight

if TYPE_CHECKING:
    from executorch.exir.schema import Tensor

LEAST_BYTES = 4096
"""Smaller constants stay in the program: their names would take as much."""


def take_weights(file: ProgramFile) -> dict[str, Weight]:
    """Remove from a program the weights of its delegates and its own constants of some size, and
    give them by name.
    """
    taken = {entry.key: Weight(file.segments[entry.segment_index]) for entry in file.program.named_data or ()}
    file.program.named_data = []
    taken |= _take_constants(file)
    file.drop_unused()
    return taken


@light_executorch()
def _take_constants(file: ProgramFile) -> dict[str, Weight]:
    from executorch.exir.scalar_type import ScalarType
    from executorch.exir.schema import ExtraTensorInfo, TensorDataLocation
    from executorch.exir.tensor_layout import TensorLayout

    constants, taken = file.constants(), {}
    for index, tensors in _constant_tensors(file).items():
        if min(map(_size_bytes, tensors)) < LEAST_BYTES:
            continue
        for tensor in tensors:
            layout = TensorLayout(ScalarType(tensor.scalar_type), tensor.sizes, tensor.dim_order)
            weight = Weight(constants[index][: _size_bytes(tensor)], layout)
            sizes, order = "x".join(map(str, layout.sizes)), "".join(map(str, layout.dim_order))
            name = f"{weight.sha256}-{layout.scalar_type.name}-{sizes}-{order}"
            taken[name] = weight
            tensor.data_buffer_idx = 0
            tensor.extra_tensor_info = ExtraTensorInfo(
                fully_qualified_name=name, location=TensorDataLocation.EXTERNAL
            )
        constants[index] = memoryview(b"")
    if taken:
        file.set_constants(constants)
    return taken


def _constant_tensors(file: ProgramFile) -> dict[int, list[Tensor]]:
    """The tensors of all methods that read each of the program's constants; what calls change has
    its first value elsewhere.
    """
    readers = defaultdict(list)
    for plan in file.program.execution_plan:
        for value in plan.values:
            tensor: Any = value.val
            if (
                type(tensor).__name__ == "Tensor"
                and tensor.data_buffer_idx
                and tensor.allocation_info is None
            ):
                readers[tensor.data_buffer_idx].append(tensor)
    return readers


def _size_bytes(tensor: Tensor) -> int:
    return math.prod(tensor.sizes) * DTYPES[tensor.scalar_type][1]
