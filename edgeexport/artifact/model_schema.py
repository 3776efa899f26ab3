"""What a program says about itself: the JSON that its constant method `get_model_schema` returns,
for apps that have the file alone.

    {"classify": {
        "inputs": [{"kind": "Tensor", "dtype": "float32", "name": "image", "meaning": "...",
                    "unit": null, "range": [-3, 3],
                    "shape": [{"kind": "range", "range": {"min": 1, "max": 16, "step": 1},
                               "name": "batch"}, {"kind": "constant", "value": 3}, ...]}],
        "outputs": [...],
        "runtimeConstraints": [{"kind": "equality", "dims": [
            {"paramSide": "input", "tensorIdx": 0, "dimIdx": 0}, ...]}],
        "dims": [{"name": "batch", "asked": [1, 16]}], "state": []},
     "get_model_schema": {"inputs": [], "outputs": [{"kind": "String"}], "runtimeConstraints": [],
        "about": {"prepare": {"mean": [...], "labels": [...]}, ...}}}

`kind`, `dtype`, `shape` and `runtimeConstraints` are the format of react-native-executorch from its
version 0.10 on, which calls the method when it loads a program and takes every entry for a method;
keys that it does not know it leaves alone. Hence what is about the whole model is in the entry of
the method itself. Other keys are named as in the manifest.

Sizes are those that were asked for: they are written before the program is checked. The build then
checks both ends of each, and publishes nothing where one fails; the manifest says which sizes were
right.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from importlib import metadata
from typing import TYPE_CHECKING, Any

from edgeexport.errors import UsageError
from edgeexport.method import Input, Method, Model, Weights
from edgeexport.samplers import OutputOf

if TYPE_CHECKING:
    import sympy
    import torch
    from torch.export import ExportedProgram

METHOD = "get_model_schema"
"""The name that apps ask for."""


def model_schema(
    model: Model,
    precision: str,
    weights: Weights,
    methods: Sequence[Method],
    programs: Mapping[str, ExportedProgram],
) -> str:
    """The JSON about `methods`, whose `programs` are those that are lowered.

    Raises UsageError for a method of that name, and for what JSON cannot say.
    """
    if METHOD in programs:
        raise UsageError(
            f"A method named '{METHOD}' cannot be built: the program describes itself with one of that name."
            " Name yours otherwise."
        )
    about = {
        "format": 1,
        "edgeexport": metadata.version("edgeexport"),
        "model": {
            "name": model.name,
            "summary": model.summary,
            "repository": model.source.repository,
            "licence": model.source.licence,
        },
        "weights": {"source": weights.source, "sha256": weights.sha256},
        "precision": precision,
        "prepare": dict(model.prepare),
    }
    entries: dict[str, Any] = {method.name: _entry(method, programs[method.name]) for method in methods}
    entries[METHOD] = {
        "inputs": [],
        "outputs": [{"kind": "String"}],
        "runtimeConstraints": [],
        "about": about,
    }
    try:
        return json.dumps(entries, allow_nan=False, separators=(",", ":"))
    except (TypeError, ValueError) as error:
        raise UsageError(
            f"{model.name} says something of itself (prepare, or an input's range) that JSON cannot: {error}."
        ) from error


def _entry(method: Method, program: ExportedProgram) -> dict[str, Any]:
    """One method: its tensors, how their sizes hang together, its dimensions and state."""
    values = {node.name: node.meta["val"] for node in program.graph.nodes if "val" in node.meta}
    inputs = [values[name] for name in program.graph_signature.user_inputs]
    outputs = [values[name] for name in program.graph_signature.user_outputs]
    sizes = _Sizes(method, program, inputs)
    given = [
        _tensor(tensor, sizes, {"name": spec.name, "meaning": spec.meaning, **_value_facts(spec)})
        for spec, tensor in zip(method.inputs, inputs)
    ]
    returned = [
        _tensor(tensor, sizes, {"name": spec.name, "meaning": spec.meaning})
        for spec, tensor in zip(method.outputs, outputs)
    ]
    return {
        "inputs": given,
        "outputs": returned,
        "runtimeConstraints": list(sizes.constraints(inputs, outputs)),
        "dims": [{"name": dim.name, "asked": [dim.min, dim.max]} for dim in method.dims],
        "state": sorted(program.graph_signature.buffers_to_mutate.values()),
    }


def _value_facts(spec: Input) -> dict[str, Any]:
    """What an input's values mean, and which output of which method it is, where it is one."""
    facts = {"unit": spec.unit, "range": list(spec.range) if spec.range else None, "first_of": spec.first_of}
    sample = spec.sample
    return facts | (
        {"output_of": {"method": sample.method, "output": sample.output}}
        if isinstance(sample, OutputOf)
        else {}
    )


def _tensor(tensor: torch.Tensor, sizes: _Sizes, facts: Mapping[str, Any]) -> dict[str, Any]:
    dtype = str(tensor.dtype).removeprefix("torch.")
    return {"kind": "Tensor", "dtype": dtype, "shape": [sizes.domain(size) for size in tensor.shape], **facts}


class _Sizes:
    """The dynamic sizes of a method's program: each symbol with its declared dimension, and the
    axis of an input that it is first met at.
    """

    def __init__(self, method: Method, program: ExportedProgram, inputs: Sequence[torch.Tensor]):
        from torch.utils._sympy.value_ranges import ValueRanges

        dims = {dim.name: dim for dim in method.dims}
        self._ranges = dict(program.range_constraints)
        self._names: dict[sympy.Expr, str] = {}
        self._first: dict[sympy.Basic, dict] = {}
        for number, (spec, tensor) in enumerate(zip(method.inputs, inputs)):
            for axis, (declared, size) in enumerate(zip(spec.shape, tensor.shape)):
                if isinstance(size, int) or not isinstance(declared, str):
                    continue
                symbol, dim = size.node.expr, dims[declared]
                self._names[symbol] = dim.name
                self._ranges[symbol] = ValueRanges(dim.min, dim.max)
                self._first.setdefault(symbol, _axis("input", number, axis))

    def domain(self, size: int | torch.SymInt) -> dict[str, Any]:
        """What a size may be; of one that is computed from others, its least and greatest."""
        if isinstance(size, int):
            return {"kind": "constant", "value": size}
        from torch.utils._sympy.value_ranges import bound_sympy

        expression = size.node.expr
        bounds = bound_sympy(expression, self._ranges)
        least, most = (
            max(int(bounds.lower), 1),
            int(bounds.upper),
        )  # an empty tensor is no size that this format has
        found = (
            {"kind": "constant", "value": most}
            if least == most
            else {"kind": "range", "range": {"min": least, "max": most, "step": 1}}
        )
        return found | ({"name": self._names[expression]} if expression in self._names else {})

    def constraints(
        self, inputs: Sequence[torch.Tensor], outputs: Sequence[torch.Tensor]
    ) -> Iterator[dict[str, Any]]:
        """Axes that always have the same size, and axes of outputs whose size is a line through
        that of an input's.
        """
        same: dict[sympy.Expr, list[dict]] = defaultdict(list)
        for side, tensors in (("input", inputs), ("output", outputs)):
            for number, tensor in enumerate(tensors):
                for axis, size in enumerate(tensor.shape):
                    if not isinstance(size, int):
                        same[size.node.expr].append(_axis(side, number, axis))
        yield from ({"kind": "equality", "dims": axes} for axes in same.values() if len(axes) > 1)
        for expression, axes in same.items():
            line = _line(expression)
            if line and line[0] in self._first and expression not in self._first:
                yield {
                    "kind": "linear",
                    "dimLhs": axes[0],
                    "dimRhs": self._first[line[0]],
                    "coefficients": line[1:],
                }


def _axis(side: str, number: int, axis: int) -> dict[str, Any]:
    return {"paramSide": side, "tensorIdx": number, "dimIdx": axis}


def _line(expression: sympy.Expr) -> tuple[sympy.Basic, int, int] | None:
    """(symbol, a, b) of a * symbol + b in whole numbers; None for another expression."""
    if len(expression.free_symbols) != 1:
        return None
    (symbol,) = expression.free_symbols
    expanded: Any = expression.expand()
    factor = expanded.coeff(symbol, 1)
    rest = expanded - factor * symbol
    return (symbol, int(factor), int(rest)) if factor.is_Integer and rest.is_Integer else None
