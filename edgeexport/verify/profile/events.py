"""An ETDump → for one call of each method, the time of every instruction, and of every operator
inside a delegate.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from edgeexport.artifact.light_executorch import light_executorch
from edgeexport.artifact.pte import is_constant, operator_name, read_program
from edgeexport.errors import RuntimeFault

CALL, DELEGATE, EXECUTE = "OPERATOR_CALL", "DELEGATE_CALL", "Method::execute"

Place = tuple[int, str, str]
"""What a time belongs to: the instruction, `position` in its delegate (or CALL, DELEGATE), and the
name inside the delegate.
"""


def read_events(etdump: Path, executed: Sequence[str | None], program: Path) -> dict[str, dict[str, Any]]:
    """By method, `total_ms`, `range_ms` (the quickest and the slowest call), `between_ms` (between
    its instructions) and `instructions`, each with its operator and what is inside.

    `executed` names the method of each call in the order of the calls, None for one that is not to
    be counted. Figures are means over the quickest quarter of a method's calls: they add up as
    those of one call do (medians would not), and a call in which another process took the core,
    which is charged to whatever operator ran then, is left out. Raises RuntimeFault for a dump of
    other calls.
    """
    with light_executorch():
        from executorch.devtools.etdump.serialize import deserialize_from_etdump_flatcc

        dump: Any = deserialize_from_etdump_flatcc(etdump.read_bytes())
    runs = [
        events
        for events in ([e.profile_event for e in run.events if e.profile_event] for run in dump.run_data)
        if any(e.name == EXECUTE for e in events)
    ]
    if len(runs) != len(executed):
        raise RuntimeFault(f"The runtime recorded {len(runs)} calls, {len(executed)} were made.")
    by_method: dict[str, list] = defaultdict(list)
    for method, events in zip(executed, runs):
        if method is not None:
            by_method[method].append(events)
    names = _names(program)
    return {method: _measured(calls, names[method]) for method, calls in by_method.items()}


def _measured(calls: list[list], names: Mapping[int, str]) -> dict[str, Any]:
    """The means over the quickest quarter of `calls`."""
    quickest_first = sorted((_times(events) for events in calls), key=lambda times: times["total"])
    range_ms = [quickest_first[0]["total"], quickest_first[-1]["total"]]
    kept = quickest_first[: math.ceil(len(calls) / 4)]
    mean = defaultdict(float)
    for times in kept:
        for place, time_ms in times.items():
            mean[place] += time_ms / len(kept)
    total, between = mean.pop("total"), mean.pop("between")
    instructions: dict[int, dict[str, Any]] = {}
    for (index, kind, name), time_ms in mean.items():
        entry = instructions.setdefault(
            index, {"index": index, "operator": names[index], "time_ms": 0.0, "inside": []}
        )
        if kind in (CALL, DELEGATE):
            entry |= {"time_ms": time_ms, "delegate": kind == DELEGATE}
        else:
            entry["inside"].append([name, time_ms])
    return {
        "total_ms": total,
        "range_ms": range_ms,
        "between_ms": between,
        "instructions": [instructions[i] for i in sorted(instructions)],
    }


def _times(events: list) -> dict[str | Place, float]:
    """The times of one call, in ms."""
    (whole,) = [e for e in events if e.name == EXECUTE]
    top = sorted((e for e in events if e.name in (CALL, DELEGATE)), key=lambda e: e.start_time)
    times: dict[str | Place, float] = defaultdict(float)
    times["total"] = _ms(whole.start_time, whole.end_time)
    ends = [whole.start_time, *(e.end_time for e in top)]
    starts = [*(e.start_time for e in top), whole.end_time]
    times["between"] = sum(max(0.0, _ms(end, start)) for end, start in zip(ends, starts))
    for event in top:
        times[event.instruction_id, event.name, ""] += _ms(event.start_time, event.end_time)
    for index, inside in _inside(events).items():
        for position, event in enumerate(inside):
            times[index, str(position), re.sub(r" #\d+$", "", _name(event))] += _ms(
                event.start_time, event.end_time
            )
    return times


def _inside(events: list) -> dict[int, list]:
    """The events inside delegates, by the delegate's instruction."""
    found = defaultdict(list)
    for event in events:
        if event.delegate_debug_id_str is not None or event.delegate_debug_id_int != -1:
            found[event.instruction_id].append(event)
    return found


def _name(event) -> str:
    return event.delegate_debug_id_str or str(event.delegate_debug_id_int)


def _ms(start: int, end: int) -> float:
    return (end - start) / 1e6


def _names(program: Path) -> dict[str, dict[int, str]]:
    """The operator or backend that each instruction calls, by method."""
    return {
        plan.name: dict(_called(plan))
        for plan in read_program(program).execution_plan
        if not is_constant(plan)
    }


def _called(plan) -> Iterator[tuple[int, str]]:
    for index, instruction in enumerate(plan.chains[0].instructions):
        call = instruction.instr_args
        if hasattr(call, "op_index"):
            yield index, operator_name(plan.operators[call.op_index])
        elif hasattr(call, "delegate_index"):
            yield index, plan.delegates[call.delegate_index].id
