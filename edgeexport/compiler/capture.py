"""Method → ExportedProgram: strict first, then non-strict; with what was declared, or not at
all.
"""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind

from edgeexport.compiler.backend_guards import no_backend_guards
from edgeexport.errors import CaptureError
from edgeexport.method import Method
from edgeexport.samplers import OutputOf

ACTIVATION_ELEMENTS = 4096
"""A lifted constant of this many elements is refused; index tables and small scales stay below it.
"""


@dataclass(frozen=True)
class Captured:
    """A functional ATen program, how it was captured, and why strict capture failed if it did."""

    program: ExportedProgram
    mode: str
    strict_failure: str | None = None


def capture(method: Method) -> Captured:
    """Capture `method` at an inner size of each dynamic dimension, and functionalize it.

    Raises CaptureError when neither mode works, when a declared dimension was specialised or
    narrowed, or when a tensor that is neither parameter nor buffer was baked into the program.
    """
    failure = None
    for strict in (True, False):
        try:
            program = _export(method, strict)
            break
        except Exception as error:  # torch.export raises its own, dynamo's and the module's errors alike
            reason = _reason(error)
            if not strict:
                raise CaptureError(
                    f"'{method.name}' cannot be captured. Strict: {failure}. Non-strict: {reason}."
                ) from error
            failure = reason
    _check_ranges(method, program)
    _check_lifted(method, program)
    return Captured(program, "strict" if strict else "non-strict", failure)


def _export(method: Method, strict: bool) -> ExportedProgram:
    inputs = method.draw(method.sizes(), outputs=_Anything(method))
    with torch.no_grad(), no_backend_guards():
        program = torch.export.export(
            method.module, inputs, dynamic_shapes=dynamic_shapes(method), strict=strict
        )
        return program.run_decompositions(_functional_table())


def _functional_table() -> dict:
    """Functionalize and decompose nothing, but einsum: written as what it is, passes can work on
    it.
    """
    einsum = torch.ops.aten.einsum.default
    return {einsum: torch.export.default_decompositions()[einsum]}


class _Anything:
    """Stands in for other methods' answers: capture needs their shapes only."""

    def __init__(self, method: Method):
        self._shapes = {
            f"{i.sample.method}/{i.sample.case}/{i.sample.output}": i.sized(method.sizes())
            for i in method.inputs
            if isinstance(i.sample, OutputOf)
        }

    def __getitem__(self, key: str) -> torch.Tensor:
        return torch.randn(self._shapes[key], generator=torch.Generator().manual_seed(0))


def dynamic_shapes(method: Method) -> tuple:
    """The declared dimensions as torch.export wants them: one entry an input, {axis: Dim}; those
    of *args nested.
    """
    dims = {d.name: torch.export.Dim(d.name, min=d.min, max=d.max) for d in method.dims if d.dynamic}
    entries = tuple({axis: dims[s] for axis, s in enumerate(i.shape) if s in dims} for i in method.inputs)
    parameters = inspect.signature(method.module.forward).parameters.values()
    named = sum(p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) for p in parameters)
    takes_more = any(p.kind is p.VAR_POSITIONAL for p in parameters) and len(entries) > named
    return (*entries[:named], entries[named:]) if takes_more else entries


def _check_ranges(method: Method, program: ExportedProgram) -> None:
    """Every declared dynamic dimension is a symbol with the declared range."""
    values = {n.name: n.meta["val"] for n in program.graph.nodes if n.op == "placeholder"}
    declared = {d.name: d for d in method.dims if d.dynamic}
    for spec, name in zip(method.inputs, program.graph_signature.user_inputs):
        for axis, size in enumerate(spec.shape):
            if size not in declared:
                continue
            dim, traced = declared[size], values[name].shape[axis]
            if not isinstance(traced, torch.SymInt):
                raise CaptureError(
                    f"'{method.name}' fixes '{size}' of '{spec.name}' to {traced}; {dim.min}..{dim.max} was"
                    " declared."
                )
            bounds = program.range_constraints[traced.node.expr]
            if int(bounds.upper) < dim.max or int(bounds.lower) > max(dim.min, 2):
                raise CaptureError(
                    f"'{method.name}' takes '{size}' from {bounds.lower} to {bounds.upper} only;"
                    f" {dim.min}..{dim.max} was declared."
                )


def _check_lifted(method: Method, program: ExportedProgram) -> None:
    """No large tensor may be lifted from plain attributes: it is an activation, or weights that are
    not registered.
    """
    specs = program.graph_signature.input_specs
    lifted = {s.target for s in specs if s.kind is InputKind.CONSTANT_TENSOR and s.target is not None}
    for target in sorted(lifted):
        tensor: Any = program.constants[target]
        if tensor.is_floating_point() and tensor.numel() >= ACTIVATION_ELEMENTS:
            raise CaptureError(
                f"'{method.name}' bakes in the tensor '{target}' {list(tensor.shape)}, which is neither a"
                " parameter nor a buffer. If it depends on an input (image features, a cache), make it an"
                " input of the method; if it is a weight, register it: capture an nn.Module that owns the"
                " model, not a bound method."
            )


def _reason(error: Exception) -> str:
    """The first line that says something, with the type."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0][:300] if lines else 'no message'}"
