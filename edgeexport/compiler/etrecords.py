"""ETRecords of a `.pte`: with one, ExecuTorch's Inspector finds the operators, modules and lines
behind the events of an ETDump.

    edgeexport build MODEL --etrecord
    edgeexport profile DIR --method NAME --keep FOLDER
    Inspector(etdump_path="FOLDER/events.etdp", etrecord="DIR/NAME.etrecord")

One file a method: the Inspector of ExecuTorch 1.5 reads the maps of a method called `forward` and
no other, so each method is the `forward` of a record of its own. It applies them to whatever else
is in the dump too: record one method at a time, and do not read the block of the call that sets up
a state. What runs inside an XNNPACK delegate gets no handles, because that backend hands none on;
the delegate's call has those of all its nodes.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from executorch.devtools.etrecord import ETRecord
from executorch.exir import ExecutorchProgramManager

from edgeexport.compiler.source_lines import Origin, instruction_handles, without_folders

FORWARD = "forward"
SUFFIX = ".etrecord"


def write_etrecords(
    folder: Path, known: Mapping[str, Mapping[int, Origin]], final: ExecutorchProgramManager
) -> None:
    """Write METHOD.etrecord into `folder` for each method of a program that was lowered with
    `generate_etrecord`; `known` is what `origins` found.

    It holds the method in the edge dialect, with its weights, as it was before anything was
    delegated, and the debug handles of each instruction, also of those that lost theirs when they
    were made in-place. Stack traces name files as `sources.json` does. Raises ValueError for a
    handle that is no node's: the record would then be of another program.
    """
    recorded = final.get_etrecord().edge_dialect_program
    for plan in (
        p for p in final.executorch_program.execution_plan if p.name in known
    ):  # one that returns a constant runs nothing
        edge = recorded[plan.name] if isinstance(recorded, dict) else recorded
        handles = final.debug_handle_map[plan.name] | instruction_handles(
            plan, final.debug_handle_map[plan.name], known[plan.name]
        )
        _check(plan.name, handles, {node.meta.get("debug_handle") for node in edge.graph.nodes})
        for node in edge.graph.nodes:  # a copy, which nothing is lowered from
            if node.meta.get("stack_trace"):
                node.meta["stack_trace"] = without_folders(node.meta["stack_trace"])
        record = ETRecord(
            edge_dialect_program=edge,
            _debug_handle_map={FORWARD: handles},
            _delegate_map={FORWARD: final.delegate_map[plan.name]},
            _instruction_id_to_num_outs_map={FORWARD: final.instruction_id_to_num_outs_map[plan.name]},
        )
        record.save(folder / f"{plan.name}{SUFFIX}")


def _check(method: str, handles: Mapping[int, int | list[int]], there: set[int | None]) -> None:
    used = {
        handle for value in handles.values() for handle in (value if isinstance(value, list) else [value])
    }
    if used - there:
        raise ValueError(
            f"the ETRecord of '{method}' has no node for the debug handles {sorted(used - there)}"
        )
