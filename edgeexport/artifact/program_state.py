"""A program's state as inputs: for a server, which holds many conversations at once."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import Any

import torch
import torch.utils._pytree as pytree
from torch.export import ExportedProgram
from torch.export.exported_program import ModuleCallEntry, ModuleCallSignature
from torch.export.graph_signature import ExportGraphSignature, InputKind, InputSpec, OutputKind, OutputSpec


def mutated_buffers(programs: Iterable[ExportedProgram]) -> tuple[str, ...]:
    """The names of the buffers that any of `programs` changes, sorted: the state that they
    share.
    """
    return tuple(
        sorted({name for program in programs for name in program.graph_signature.buffers_to_mutate.values()})
    )


def copied(program: ExportedProgram) -> ExportedProgram:
    """The same program in a graph of its own, on the same weights: what one target's passes do to
    it, another does not see.
    """
    module = copy.deepcopy(program.graph_module)
    for old, new in zip(program.graph.nodes, module.graph.nodes):
        new.name = (
            old.name
        )  # a copy renames what is named like a builtin ("input"); the signature goes by names
    return _program(
        program,
        module,
        copy.deepcopy(program.graph_signature),
        dict(program.state_dict),
        dict(program.constants),
        copy.deepcopy(program.module_call_graph),
        program.example_inputs,
    )


def lift_state(program: ExportedProgram, names: Iterable[str]) -> ExportedProgram:
    """`program` with the buffers `names` that it has as inputs, after its own and in this order,
    which a call writes in place.

    The tensors given for them are donated: they hold the new state when the call returns. The call
    takes its inputs flat.
    """
    program = copied(program)
    graph, signature = program.graph, program.graph_signature
    buffers = {s.target: s for s in signature.input_specs if s.kind is InputKind.BUFFER}
    lifted = {name: buffers[name] for name in names if name in buffers}
    placeholders = {n.name: n for n in graph.nodes if n.op == "placeholder"}
    last = list(placeholders.values())[-1]
    for spec in lifted.values():
        node = placeholders[spec.arg.name]
        if node is not last:
            last.append(node)
            last = node
    state = state_of(program, lifted)
    for name in lifted:
        (program.state_dict if name in program.state_dict else program.constants).pop(name)
    kept = [s for s in signature.input_specs if s.target not in lifted or s.kind is not InputKind.BUFFER]
    inputs = kept + [InputSpec(InputKind.USER_INPUT, s.arg, None) for s in lifted.values()]
    outputs = [
        (
            OutputSpec(OutputKind.USER_INPUT_MUTATION, s.arg, lifted[s.target].arg.name)
            if s.kind is OutputKind.BUFFER_MUTATION and s.target is not None
            else s
        )
        for s in signature.output_specs
    ]
    count = sum(spec.kind is InputKind.USER_INPUT for spec in inputs)
    in_spec = pytree.tree_flatten((tuple(range(count)), {}))[1]
    entry = ModuleCallEntry("", ModuleCallSignature([], [], in_spec, signature_of(program).out_spec))
    examples = (
        None
        if program.example_inputs is None
        else ((*pytree.tree_leaves(program.example_inputs), *state.values()), {})
    )
    return _program(
        program,
        program.graph_module,
        ExportGraphSignature(inputs, outputs),
        program.state_dict,
        program.constants,
        [entry],
        examples,
    )


def state_of(program: ExportedProgram, names: Iterable[str]) -> dict[str, torch.Tensor]:
    """The buffers of these names that a program has, in this order, as they are at its start."""
    stored: dict[str, Any] = {**program.constants, **program.state_dict}
    buffers = {s.target for s in program.graph_signature.input_specs if s.kind is InputKind.BUFFER}
    return {name: stored[name].detach() for name in names if name in buffers}


def signature_of(program: ExportedProgram) -> ModuleCallSignature:
    """How the program itself is called, the first of its module calls."""
    signature = program.module_call_graph[0].signature
    assert signature is not None, "only inner modules may have none"
    return signature


def with_examples(program: ExportedProgram, inputs: tuple | None) -> ExportedProgram:
    """The same program with these inputs as the ones it was captured with; with None, with none."""
    examples = None if inputs is None else (inputs, {})
    return _program(
        program,
        program.graph_module,
        program.graph_signature,
        program.state_dict,
        program.constants,
        program.module_call_graph,
        examples,
    )


def _program(
    like: ExportedProgram, module, signature, state_dict, constants, calls, example_inputs
) -> ExportedProgram:
    return ExportedProgram(
        root=module,
        graph=module.graph,
        graph_signature=signature,
        state_dict=state_dict,
        range_constraints=dict(like.range_constraints),
        module_call_graph=calls,
        example_inputs=example_inputs,
        constants=constants,
        verifiers=like.verifiers,
    )
