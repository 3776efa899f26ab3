"""Where each instruction of a `.pte`, and each node inside its delegates, comes from in the model's code: `sources.json`.

    {"format": 1,
     "sources": [["transformers/models/whisper/modeling_whisper.py:278", "model.decoder.layers.0.fc1"], ...],
     "methods": {"decode_step": {"instructions": {"0": 3}, "delegates": {"6": [["FullyConnected", 5], ["StaticReshape", null]]}}}}

Numbers are places in `sources`, by instruction of the program; null is what lowering added itself, which no line of the model asks for.
A delegate's nodes are in the order of its graph. A file is named below the folder that Python found it in, never by a path of this machine.
"""

from __future__ import annotations

import json
import operator
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import executorch
import torch
from executorch.exir import EdgeProgramManager, ExecutorchProgramManager
from executorch.exir.schema import DelegateCall
from torch.fx import GraphModule, Node

from edgeexport.artifact import SOURCES

DelegateNodes = Mapping[bytes, Sequence[tuple[str, int]]]
"""The nodes of each delegate, by the bytes that it became: their kind and debug handle."""

_FRAME = re.compile(r'File "([^"]+)", line (\d+)')
_INFRASTRUCTURE = tuple(f"{Path(folder).resolve()}/" for package in (torch, executorch) for folder in package.__path__)
"""Whose lines say nothing about a model: nn.Linear's own is the same for every linear map."""

Source = tuple[str, str]


def sources_by_handle(edge: EdgeProgramManager) -> dict[str, dict[int, Source]]:
    """Source line and module of each debug handle, by method: taken before the program is emitted, which writes over the handles."""
    return {name: dict(_handles(edge.exported_program(name).graph_module)) for name in edge.methods}


def _handles(module: GraphModule) -> Iterable[tuple[int, Source]]:
    for node in module.graph.nodes:
        if "executorch_call_delegate" in str(node.target):
            yield from _handles(getattr(module, node.args[0].name).original_module.graph_module)
        elif node.target is not operator.getitem and "debug_handle" in node.meta and node.meta.get("stack_trace"):
            yield node.meta["debug_handle"], (_line(node.meta["stack_trace"]), _module(node))


def _line(stack_trace: str) -> str:
    """The innermost line that is neither PyTorch's nor ExecuTorch's; the innermost of all, where there is no other."""
    frames = _FRAME.findall(stack_trace)
    own = [frame for frame in frames if not str(Path(frame[0]).resolve()).startswith(_INFRASTRUCTURE)]
    file, number = (own or frames or [("", "0")])[-1]
    return f"{_relative(file)}:{number}"


def _relative(file: str) -> str:
    """A file below the innermost folder of Python's search path; its name alone, where none holds it."""
    path = Path(file).resolve()
    homes = [home for entry in sys.path if entry and path.is_relative_to(home := Path(entry).resolve())]
    return str(path.relative_to(max(homes, key=lambda home: len(home.parts)))) if homes else path.name


def _module(node: Node) -> str:
    """The path of the module that called it, as `named_modules` has it."""
    path = list((node.meta.get("nn_module_stack") or {"": ("", "")}).values())[-1][0]
    return path.removeprefix("L['self']").lstrip(".")


def write_sources(folder: Path, by_handle: Mapping[str, Mapping[int, Source]], final: ExecutorchProgramManager, delegates: DelegateNodes) -> None:
    """Write SOURCES into `folder` for an emitted program; `by_handle` as `sources_by_handle` found them."""
    places: dict[Source, int] = {}
    methods = {}
    for plan in final.executorch_program.execution_plan:
        known = {handle: places.setdefault(source, len(places)) for handle, source in by_handle[plan.name].items()}
        instructions, inside = {}, {}
        for index, handle in final.debug_handle_map[plan.name].items():
            call = plan.chains[0].instructions[index].instr_args
            if isinstance(call, DelegateCall):
                nodes = delegates.get(_content(final, plan.delegates[call.delegate_index]), ())
                inside[index] = [[kind, known.get(handle)] for kind, handle in nodes]
            else:
                instructions[index] = known.get(handle)
        methods[plan.name] = {"instructions": instructions, "delegates": inside}
    content = {"format": 1, "sources": list(places), "methods": methods}
    (folder / SOURCES).write_text(json.dumps(content, separators=(",", ":")) + "\n", encoding="utf-8")


def _content(final: ExecutorchProgramManager, delegate) -> bytes:
    return bytes(final.executorch_program.backend_delegate_data[delegate.processed.index].data)
