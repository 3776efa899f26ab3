"""Where the time of a `.pte` goes: per operator, inside its delegates too, and per line of the
model; what is not delegated, why, and the fix.

The program runs in a process of its own with events recorded, which makes every call slower: shares
are what to read, not latency.
"""

from __future__ import annotations

import dataclasses
import json
import shutil
import tempfile
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from edgeexport.artifact.folder import SOURCES, Artifact, open_artifact
from edgeexport.artifact.manifest import Case, MethodEntry, to_json
from edgeexport.artifact.pte import plain_name
from edgeexport.artifact.targets import is_pte
from edgeexport.errors import ArtifactError, CheckFailed, UnknownName, UsageError, foreign_errors
from edgeexport.runtime.child_process import run_child
from edgeexport.verify.profile.attribution import aligned
from edgeexport.verify.profile.fixes import fix_of

BETWEEN = "runtime overhead"
"""The row of what passes between the instructions of a program; of a delegate it is called after
the backend.
"""

NOT_ATTRIBUTED, ADDED = "not attributed", "added by lowering"
"""In place of a line: what could not be told, and what no line of the model asks for."""

ADDED_LATER = "it is not in the graph that was partitioned: lowering added it afterwards"
ETDUMP = "events.etdp"
SUM_WITHIN = 0.05


@dataclass(frozen=True)
class Line:
    """A line of the model's code with the module that ran it, and the time of an operator there."""

    source: str
    module: str
    time_ms: float


@dataclass(frozen=True)
class Operator:
    """One kind of operator in a call of a method: how often it runs and its time; outside the
    delegates, why and what would change it.

    `delegated` is None for what is no operator: the runtime between its instructions.
    """

    operator: str
    delegated: bool | None
    calls: int
    time_ms: float
    share: float
    reason: str = ""
    fix: str = ""
    lines: tuple[Line, ...] = ()


@dataclass(frozen=True)
class MethodProfile:
    """The operators of one method, the longest first; `total_ms` is what the runtime recorded for
    the whole call, `accounted_ms` their sum.

    `range_ms` is the quickest and the slowest call: far apart, the machine had other work, and the
    shares are rough.
    """

    method: str
    sizes: Mapping[str, int]
    total_ms: float
    range_ms: tuple[float, float]
    accounted_ms: float
    operators: tuple[Operator, ...]

    @property
    def costliest_outside(self) -> Operator | None:
        """The operator outside the delegates that takes most time."""
        return next((o for o in self.operators if o.delegated is False), None)

    @cached_property
    def lines(self) -> list[Line]:
        """The lines of the model, over all operators, the longest first."""
        return _lines(
            (line.source, line.module, line.time_ms) for operator in self.operators for line in operator.lines
        )


@dataclass(frozen=True)
class Profile:
    """The profile of an artifact's methods, by a run of `calls` calls each with `threads`."""

    model: str
    program_sha256: str
    calls: int
    threads: int
    methods: tuple[MethodProfile, ...]

    def to_json(self) -> dict[str, Any]:
        return {"format": 1, "kind": "profile", **dataclasses.asdict(self)}


def profile(
    path: str | Path,
    methods: Sequence[str] = (),
    sizes: Mapping[str, int] | None = None,
    calls: int = 10,
    threads: int | None = None,
    keep: Path | None = None,
    force: bool = False,
) -> Profile:
    """Profile `methods` (all) of the artifact at `path`, at `sizes` (each dimension's least), and
    check that the times add up.

    In the folder `keep` stay the ETDump and a bundled program with the recorded cases. Raises
    UsageError for what cannot be profiled so, ArtifactError for what `keep` holds already,
    RuntimeFault when the program does not run, CheckFailed when times do not add up.
    """
    artifact = open_artifact(path, is_pte)
    chosen = _chosen(artifact, methods, sizes or {})
    if calls < 1 or (threads is not None and threads < 1):
        raise UsageError("The numbers of calls and of threads must be at least 1.")
    bundled = f"{artifact.program_path.stem}.bpte"
    kept = [] if keep is None else [keep / ETDUMP, keep / bundled]
    for place in kept:
        if place.exists() and not force:
            raise ArtifactError(f"{place} is there already. Give --force to replace it, or another --keep.")
    request = {
        "path": str(artifact.path),
        "cases": to_json(chosen),
        "calls": calls,
        "threads": threads,
        "bundled": bundled if kept else None,
    }
    with tempfile.TemporaryDirectory() as folder:
        measured = run_child(
            "edgeexport.verify.profile.process", request | {"folder": folder}, "the profiled run"
        ).answered()
        found = _profile(artifact, measured, calls)
        for place in kept:
            with foreign_errors(str(place)):
                _move(Path(folder) / place.name, place.parent)
    for method in found.methods:
        _check_sum(method)
    return found


def _chosen(artifact: Artifact, methods: Sequence[str], sizes: Mapping[str, int]) -> dict[str, Case]:
    """The case to run of each method: its least, with the `sizes` that were asked for."""
    if not is_pte(artifact.target):
        raise UsageError(
            f"{artifact.name} is a server package ({artifact.program_path.name}): ExecuTorch's events are for"
            " a .pte. Profile it with torch.profiler around program.call(...), or compare latency with"
            " edgeexport bench."
        )
    for name in methods:
        if name not in artifact.methods:
            raise UnknownName("method", name, artifact.methods)
    entries = {name: artifact.methods[name] for name in methods or artifact.methods}
    dims = {name: dim for entry in entries.values() for name, dim in entry.ranges.items()}
    for name, size in sizes.items():
        if name not in dims:
            raise UnknownName("dimension", name, dims)
        if not dims[name].min <= size <= dims[name].max:
            raise UsageError(
                f"{name} = {size} cannot be: this program takes {dims[name].min} to {dims[name].max}."
            )
    return {name: _case(entry, sizes) for name, entry in entries.items()}


def _case(entry: MethodEntry, sizes: Mapping[str, int]) -> Case:
    """A case of these sizes, drawn and set up as the recorded ones are."""
    cases = entry.cases
    first = cases[0]
    wanted = {**first.sizes, **{name: size for name, size in sizes.items() if name in first.sizes}}
    setup = first.setup
    if setup is not None:
        # A recorded case has the sizes of both calls: a size of the first call follows the
        # dimension that it equals in every case.
        follows = {
            theirs: next(
                ours
                for ours in wanted
                if all(c.setup.sizes[theirs] == c.sizes[ours] for c in cases if c.setup)
            )
            for theirs in setup.sizes
        }
        setup = replace(setup, sizes={theirs: wanted[ours] for theirs, ours in follows.items()})
    return replace(first, sizes=wanted, setup=setup)


def _move(file: Path, folder: Path) -> None:
    """Copied beside its place first: the temporary folder may be on another file system."""
    folder.mkdir(parents=True, exist_ok=True)
    partial = folder / f".{file.name}.partial"
    shutil.copyfile(file, partial)
    partial.replace(folder / file.name)


def _profile(artifact: Artifact, measured: dict, calls: int) -> Profile:
    sources = (
        json.loads((artifact.path / SOURCES).read_text(encoding="utf-8"))
        if SOURCES in artifact.manifest.files
        else None
    )
    methods = tuple(
        _method(artifact.methods[name], times, sources) for name, times in measured["methods"].items()
    )
    manifest = artifact.manifest
    return Profile(manifest.model.name, manifest.program_file.sha256, calls, measured["threads"], methods)


def _method(entry: MethodEntry, times: dict, sources: dict | None) -> MethodProfile:
    """Every instruction's time is in exactly one row: its operator's, or those of its delegate."""
    total_ms = times["total_ms"]
    places = _Places(sources, entry.name)
    rows: dict[tuple[str, bool | None], list[tuple[str | None, str, float]]] = defaultdict(list)
    for instruction in times["instructions"]:
        if not instruction["delegate"]:
            rows[instruction["operator"], False].append(
                (*places.of_instruction(instruction["index"]), instruction["time_ms"])
            )
            continue
        inside = instruction["inside"]
        for (name, time_ms), place in zip(
            inside, places.of_delegate(instruction["index"], [name for name, _ in inside])
        ):
            rows[name, True].append((*place, time_ms))
        rest_ms = max(0.0, instruction["time_ms"] - sum(time_ms for _, time_ms in inside))
        rows[f"{instruction['operator']} overhead", True].append((None, "", rest_ms))
    rows[BETWEEN, None].append((None, "", times["between_ms"]))
    operators = [
        _operator(name, delegated, parts, entry, total_ms) for (name, delegated), parts in rows.items()
    ]
    operators.sort(key=lambda o: -o.time_ms)
    return MethodProfile(
        entry.name,
        times["sizes"],
        total_ms,
        tuple(times["range_ms"]),
        sum(o.time_ms for o in operators),
        tuple(operators),
    )


def _operator(
    name: str, delegated: bool | None, parts: list, entry: MethodEntry, total_ms: float
) -> Operator:
    time_ms = sum(time_ms for *_, time_ms in parts)
    lines = tuple(_lines((source, module, ms) for source, module, ms in parts if source is not None))
    reason, fix = (_reason(name, entry), fix_of(name)) if delegated is False else ("", "")
    return Operator(name, delegated, len(parts), time_ms, time_ms / total_ms, reason, fix, lines)


def _reason(operator: str, entry: MethodEntry) -> str:
    """What the partitioner said, found by the name that the operator had then."""
    then = {"et_view": "view_copy"}.get(plain_name(operator), plain_name(operator))
    outside = entry.delegation.outside if entry.delegation else ()
    reasons = [o.reason for o in outside if plain_name(o.operator) == then]
    return "; ".join(dict.fromkeys(reasons)) or ADDED_LATER


def _lines(parts) -> list[Line]:
    """Times summed by line and module, the longest first."""
    sums: dict[tuple[str, str], float] = defaultdict(float)
    for source, module, time_ms in parts:
        sums[source, module] += time_ms
    return [Line(*place, time_ms) for place, time_ms in sorted(sums.items(), key=lambda item: -item[1])]


class _Places:
    """Lines and modules of one method, by instruction; (None, "") throughout for an artifact
    without SOURCES.
    """

    def __init__(self, sources: dict | None, method: str):
        self._sources = sources["sources"] if sources else []
        self._method = sources["methods"][method] if sources else None

    def of_instruction(self, index: int) -> tuple[str | None, str]:
        if self._method is None:
            return None, ""
        return self._place(self._method["instructions"].get(str(index)))

    def of_delegate(self, index: int, events: list[str]) -> list[tuple[str | None, str]]:
        """Of each event inside a delegate."""
        if self._method is None:
            return [(None, "")] * len(events)
        nodes = self._method["delegates"].get(str(index), [])
        found = aligned(events, [kind for kind, _ in nodes])
        return [(NOT_ATTRIBUTED, "") if node is None else self._place(nodes[node][1]) for node in found]

    def _place(self, number: int | None) -> tuple[str, str]:
        return (ADDED, "") if number is None else tuple(self._sources[number])


def _check_sum(method: MethodProfile) -> None:
    """Counted twice or left out, times would not add up to the call's own."""
    if abs(method.accounted_ms - method.total_ms) > SUM_WITHIN * method.total_ms:
        raise CheckFailed(
            f"The operators of '{method.method}' take {method.accounted_ms:.3f} ms together, the whole call"
            f" {method.total_ms:.3f} ms: they do not add up within {SUM_WITHIN:.0%}, so these shares cannot"
            " be trusted. Run it again with more --calls."
        )
