"""Where each instruction of a `.pte`, and each node inside its delegates, comes from in the model's
code: `sources.json`.

    {"format": 1,
     "sources": [["transformers/models/whisper/modeling_whisper.py:278", "decoder.layers.0.fc1"],
                 ...],
     "methods": {"decode_step": {
         "instructions": {"0": 3},
         "delegates": {"6": [["FullyConnected", 5], ["StaticReshape", null]]}}}}

Numbers are places in `sources`, by instruction of the program; null is what lowering added itself,
which no line of the model asks for. A delegate's nodes are in the order of its graph. A file is
named below the folder that Python found it in, never by a path of this machine.
"""

from __future__ import annotations

import json
import operator
import re
import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import executorch
import torch
from executorch.exir import EdgeProgramManager, ExecutorchProgramManager
from executorch.exir.schema import DelegateCall, ExecutionPlan, KernelCall
from torch.fx import GraphModule, Node

from edgeexport.artifact.folder import SOURCES
from edgeexport.artifact.pte import plain_name

DelegateNodes = Mapping[bytes, Sequence[tuple[str, int]]]
"""The nodes of each delegate, by the bytes that it became: their kind and debug handle."""

_FRAME = re.compile(r'File "([^"]+)", line (\d+)')
_INFRASTRUCTURE = (
    "torch/",
    *(f"{Path(folder).resolve()}/" for package in (torch, executorch) for folder in package.__path__),
)
"""Whose lines say nothing about a model: nn.Linear's own is the same for every linear map.

Nodes that PyTorch adds name a file as `torch/...`.
"""

Source = tuple[str, str]


@dataclass(frozen=True)
class Origin:
    """What a debug handle stands for: the operator, its line of source and its module."""

    operator: str
    source: Source


def origins(edge: EdgeProgramManager) -> dict[str, dict[int, Origin]]:
    """The origin of each debug handle, by method: taken before the program is emitted, which writes
    over the handles.
    """
    return {name: dict(_origins(edge.exported_program(name).graph_module)) for name in edge.methods}


def _origins(module: GraphModule) -> Iterable[tuple[int, Origin]]:
    for node in module.graph.nodes:
        if node.op != "call_function":
            continue
        if "executorch_call_delegate" in str(node.target):
            yield from _origins(getattr(module, node.args[0].name).original_module.graph_module)
        elif (
            node.target is not operator.getitem
            and "debug_handle" in node.meta
            and (line := _line(node.meta.get("stack_trace") or ""))
        ):
            yield (
                node.meta["debug_handle"],
                Origin(plain_name(getattr(node.target, "_name", "")), (line, _module(node))),
            )


def _line(stack_trace: str) -> str | None:
    """The innermost line that is neither PyTorch's nor ExecuTorch's; None, where there is none."""
    frames = [
        (file, number)
        for file, number in _FRAME.findall(stack_trace)
        if not _resolved(file).startswith(_INFRASTRUCTURE)
    ]
    return f"{_relative(frames[-1][0])}:{frames[-1][1]}" if frames else None


def without_folders(stack_trace: str) -> str:
    """A stack trace whose files are named as `sources` names them."""
    return _FRAME.sub(lambda frame: f'File "{_relative(frame[1])}", line {frame[2]}', stack_trace)


def _resolved(file: str) -> str:
    return str(Path(file).resolve()) if Path(file).is_absolute() else file


def _relative(file: str) -> str:
    """A file below the innermost folder of Python's search path; its name alone, where none holds
    it.
    """
    path = Path(file).resolve()
    homes = [home for entry in sys.path if entry and path.is_relative_to(home := Path(entry).resolve())]
    return str(path.relative_to(max(homes, key=lambda home: len(home.parts)))) if homes else path.name


def _module(node: Node) -> str:
    """The path of the module that called it, as `named_modules` has it."""
    path = list((node.meta.get("nn_module_stack") or {"": ("", "")}).values())[-1][0]
    return path.removeprefix("L['self']").lstrip(".")


def write_sources(
    folder: Path,
    known: Mapping[str, Mapping[int, Origin]],
    final: ExecutorchProgramManager,
    delegates: DelegateNodes,
) -> None:
    """Write SOURCES into `folder` for an emitted program; `known` is what `origins` found."""
    recorded: Any = final.debug_handle_map  # by method, which its annotation leaves out
    numbers: dict[Source, int] = {}
    methods = {}
    for plan in final.executorch_program.execution_plan:
        if plan.name not in known:
            continue  # a constant method: nothing is computed
        places: dict[int | None, int] = {
            handle: numbers.setdefault(origin.source, len(numbers))
            for handle, origin in known[plan.name].items()
        }
        handles = instruction_handles(plan, recorded[plan.name], known[plan.name])
        instructions, inside = {}, {}
        for index, call in _calls(plan):
            if isinstance(call, DelegateCall):
                content = final.executorch_program.backend_delegate_data[
                    plan.delegates[call.delegate_index].processed.index
                ].data
                inside[index] = [
                    [kind, places.get(handle)] for kind, handle in delegates.get(bytes(content), ())
                ]
            else:
                instructions[index] = places.get(handles.get(index))
        methods[plan.name] = {"instructions": instructions, "delegates": inside}
    content = {"format": 1, "sources": list(numbers), "methods": methods}
    (folder / SOURCES).write_text(json.dumps(content, separators=(",", ":")) + "\n", encoding="utf-8")


def _calls(plan: ExecutionPlan) -> list[tuple[int, KernelCall | DelegateCall]]:
    numbered = (
        (index, instruction.instr_args) for index, instruction in enumerate(plan.chains[0].instructions)
    )
    return [(index, call) for index, call in numbered if isinstance(call, (KernelCall, DelegateCall))]


def instruction_handles(
    plan: ExecutionPlan, recorded: Mapping[int, int | list[int]], known: Mapping[int, Origin]
) -> dict[int, int]:
    """The debug handle of each operator's instruction.

    Operators that were made in-place while emitting have lost theirs: where as many of a name are
    without a handle as there are handles of that name left over, they are the same, in order.
    """
    handles = {index: handle for index, handle in recorded.items() if isinstance(handle, int)}
    used = {
        *handles.values(),
        *(handle for several in recorded.values() if isinstance(several, list) for handle in several),
    }
    left, lost = defaultdict(list), defaultdict(list)
    for handle, origin in known.items():
        if handle not in used:
            left[origin.operator].append(handle)
    for index, call in _calls(plan):
        if isinstance(call, KernelCall) and index not in handles:
            lost[plain_name(plan.operators[call.op_index].name)].append(index)
    for name, indices in lost.items():
        if len(indices) == len(left[name]):
            handles |= zip(indices, left[name])
    return handles
