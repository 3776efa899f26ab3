"""Does what the program says of itself fit the tensors in it?

Asked as react-native-executorch does when it loads a program.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from edgeexport.artifact.model_schema import METHOD
from edgeexport.artifact.pte_contents import MethodContents, Value, read_contents
from edgeexport.method import Finding
from edgeexport.runtime.program import Program


def check(program: Program) -> Iterator[Finding]:
    """One finding a method; nothing for a program that says nothing, as those of earlier
    versions.
    """
    contents = read_contents(program.artifact.program_path)
    if METHOD not in contents.constants:
        return
    for method in contents.methods:
        wrong = list(_wrong((contents.schema or {}).get(method.name), method))
        tensors = f"{len(method.inputs)} inputs, {len(method.outputs)} outputs"
        yield Finding(
            "model_schema",
            method.name,
            not wrong,
            "says otherwise than the tensors" if wrong else f"says {tensors}",
            "fits the file's tensors",
            "; ".join(wrong),
        )


def _wrong(entry: Any, method: MethodContents) -> Iterator[str]:
    if entry is None:
        yield "it is not described"
        return
    for side, values in (("inputs", method.inputs), ("outputs", method.outputs)):
        if len(entry[side]) != len(values):
            yield f"{len(entry[side])} {side} are described, it has {len(values)}"
        for said, value in zip(entry[side], values):
            yield from (f"{said.get('name')}: {what}" for what in _differs(said, value))


def _differs(said: dict[str, Any], value: Value) -> Iterator[str]:
    if (said["kind"], said["dtype"], len(said["shape"])) != (value.kind, value.dtype, len(value.sizes or ())):
        yield (
            f"{said['kind']} {said['dtype']} of {len(said['shape'])} axes, in the file {value.kind}"
            f" {value.dtype} of {value.sizes}"
        )
        return
    for axis, (domain, size) in enumerate(zip(said["shape"], value.sizes or ())):
        if domain["kind"] == "constant" and domain["value"] != size:
            yield f"axis {axis} is {domain['value']}, in the file {size}"
        if domain["kind"] == "range" and domain["range"]["max"] != size:
            yield f"axis {axis} is up to {domain['range']['max']}, memory is planned for {size}"
