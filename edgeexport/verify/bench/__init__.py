"""What a method costs beside others: contenders take turns in the same processes, and the machine's
noise is measured in between.

    found = bench(["build/sam2/xnnpack-fp32"], against=("eager", "compile"), sizes={"points": (3,)})
    # on the board
    found = bench(["build/mvit/xnnpack-fp32"], runner="native@raspberry_pi_5=ssh://pi@pi.local")
"""

from __future__ import annotations

import datetime
import importlib
import os
import pkgutil
import platform
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

from edgeexport import catalog
from edgeexport.artifact.folder import Artifact, open_artifacts, same_model
from edgeexport.artifact.manifest import MethodEntry
from edgeexport.artifact.targets import is_pte
from edgeexport.errors import InputError, UnknownName, UsageError
from edgeexport.progress import Progress
from edgeexport.runtime.child_process import run_child
from edgeexport.runtime.program import Runtime, ready
from edgeexport.verify.bench import against as folder

AGAINST = tuple(sorted(module.name for module in pkgutil.iter_modules(folder.__path__)))
"""What an artifact can be measured beside; each is one file of `against/`."""

PROCESSES = 3
"""The rounds of a thread count are shared among this many processes: how quick something is may
differ from one to the next and stay so. PyTorch's features of Whisper had a median of 14 ms in one
and 18 ms in the next, so that two runs of one process each were not within each other's spread.
"""

PACKAGES = ("edgeexport", "torch", "executorch", "onnxruntime")


def bench(
    paths: Sequence[str | Path],
    *,
    against: Sequence[str] | None = None,
    baseline: str | None = None,
    threads: Sequence[int] = (1, 2),
    rounds: int = 20,
    processes: int = PROCESSES,
    sizes: Mapping[str, Sequence[int]] | None = None,
    methods: Sequence[str] = (),
    runner: str | None = None,
    model: str | None = None,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Latency of every method (or of `methods`) of artifacts of one model, beside the contenders
    `against`, in ms; and their memory.

    `sizes` gives dynamic dimensions the sizes to measure at, every combination (default: the least
    of each); `baseline` is what ratios are to, by default the first of `against`, or else the first
    artifact. `runner` is how `.pte` run, as `open_program` takes it; with that of a board that is
    there, artifacts are compared with each other on it, and `against`, by default eager, must be
    empty. Each thread count has `processes` of its own, among which its rounds are shared: a
    runtime's pool cannot be changed once a program is loaded. `model` names the code of a model
    that is not of the catalogue, which contenders need. Raises UsageError for names and sizes
    that are not there, RuntimeFault when a process ends before its time.
    """
    from edgeexport.verify.bench import figures  # NumPy takes a while to import

    progress = progress or Progress()
    artifacts = [artifact for path in paths for artifact in open_artifacts(path)]
    runtime = Runtime.of(runner or "")
    _refuse_for_board(artifacts, against or (), runtime)
    against = (() if runtime.at else ("eager",)) if against is None else against
    request = _request(artifacts, against, baseline, sizes or {}, methods, runner, model)
    for what, number in (("rounds", rounds), ("processes", processes)):
        if number < 1:
            raise UsageError(f"The number of {what} must be at least 1, not {number}.")
    if against:
        catalog.original(artifacts[0].manifest.model.asked, model)
    found: dict[str, Any] = {
        "format": 1,
        "kind": "bench",
        "model": artifacts[0].manifest.model.name,
        "weights_sha256": artifacts[0].manifest.weights.sha256,
        "weights_source": artifacts[0].manifest.weights.source,
        "date": datetime.date.today().isoformat(),
        **_where(runtime),
        "versions": dict(_versions()),
        "noise": [],
        "rows": [],
        "memory": [],
    }
    with tempfile.TemporaryDirectory(prefix="edgeexport-bench-") as made:
        for count in threads:
            with progress.step(f"measure with {count} thread{'s'[: count > 1]}"):
                shares = [len(range(first, rounds, processes)) for first in range(min(processes, rounds))]
                answers = [
                    _in_a_process("process", request | {"threads": count, "rounds": share, "folder": made})
                    for share in shares
                ]
            found["noise"] += figures.noise(
                count, [ms for answer in answers for ms in answer["calibration_ms"]]
            )
            found["rows"] += figures.rows([answer["rows"] for answer in answers], request["baseline"])
        with progress.step("measure memory"):
            for one in _memory_requests(artifacts, request, threads[0]):
                found["memory"].append(_in_a_process("memory", one))
    return found


def _refuse_for_board(artifacts: Sequence[Artifact], against: Sequence[str], runtime: Runtime) -> None:
    """Raises UsageError for what a board cannot run, or an emulator not time."""
    if runtime.emulated:
        raise UsageError(
            f"{runtime.board} is emulated there: its times would be the emulator's. Measure on the board"
            " itself (--at), or count instructions (edgeexport check --emulate)."
        )
    if not runtime.at:
        return
    if against:
        raise UsageError(
            f"{', '.join(against)} can run on this machine only. On {runtime.board}, artifacts are compared"
            " with each other: leave --against out."
        )
    for artifact in artifacts:
        if not is_pte(artifact.target):
            raise UsageError(
                f"{artifact.name} is a server package ({artifact.program_path.name}); on {runtime.board} a"
                " .pte can be measured. Of an archive, name one artifact: ARCHIVE/NAME."
            )


def _where(runtime: Runtime) -> dict[str, Any]:
    """The machine that is measured: this one, or a board with its name and address.

    Raises UsageError, RuntimeFault.
    """
    if not runtime.at:
        return {"machine": machine()}
    from edgeexport.runtime.boards import board
    from edgeexport.runtime.remote import Device

    device = board(runtime.board)
    return {"board": device.name, "at": runtime.at, "machine": Device(device, runtime.at).machine()}


def _request(artifacts, against, baseline, sizes, methods, runner, model) -> dict[str, Any]:
    """What every process is told, held against what there is."""
    same_model(artifacts)
    names = _names(artifacts)
    for name in against:
        if name not in AGAINST:
            raise UnknownName("contender", name, AGAINST)
        importlib.import_module(f"edgeexport.verify.bench.against.{name}").require()
    baseline = baseline or [*against, *names][0]
    if baseline not in (*against, *names):
        raise UnknownName("contender", baseline, [*against, *names])
    entries = artifacts[0].methods
    for name in methods:
        if name not in entries:
            raise UnknownName("method", name, entries)
    chosen = [name for name in entries if not methods or name in methods]
    _refuse_sizes({name: entries[name] for name in chosen}, sizes)
    runners = [ready(artifact, runner if is_pte(artifact.target) else None) for artifact in artifacts]
    return {
        "artifacts": [
            {"name": n, "path": str(a.path), "runner": str(r)} for n, a, r in zip(names, artifacts, runners)
        ],
        "against": list(against),
        "baseline": baseline,
        "methods": chosen,
        "sizes": {d: list(s) for d, s in sizes.items()},
        "model": model,
    }


def _names(artifacts: Sequence[Artifact]) -> list[str]:
    """What rows call the artifacts: their side, or all of their name where two have the same."""
    sides = [a.side for a in artifacts]
    return [side if sides.count(side) == 1 else artifact.name for side, artifact in zip(sides, artifacts)]


def _refuse_sizes(entries: Mapping[str, MethodEntry], sizes: Mapping[str, Sequence[int]]) -> None:
    dims = {name: dim for entry in entries.values() for name, dim in entry.ranges.items()}
    for name, wanted in sizes.items():
        if name not in dims:
            raise UnknownName("dimension", name, dims)
        for size in wanted:
            if not dims[name].min <= size <= dims[name].max:
                raise InputError(
                    f"'{name}' cannot be {size}: this program takes {dims[name].min} to {dims[name].max}."
                )


def _memory_requests(
    artifacts: Sequence[Artifact], request: dict[str, Any], threads: int
) -> Iterator[dict[str, Any]]:
    for entry in request["artifacts"]:
        for method in request["methods"]:
            yield entry | {
                "method": method,
                "sizes": {d: s[-1] for d, s in request["sizes"].items()},
                "threads": threads,
            }


def _in_a_process(module: str, request: dict[str, Any]) -> dict[str, Any]:
    """What the child `module` measured; raises what it raised, ChildCrashed when it crashed."""
    return run_child(f"edgeexport.verify.bench.{module}", request, "the measuring process").answered()


def machine() -> dict[str, Any]:
    """The machine's CPU, cores that this process may use, memory and system."""
    lines = (
        Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        if Path("/proc/cpuinfo").exists()
        else []
    )
    cpu = next(
        (line.partition(":")[2].strip() for line in lines if line.startswith("model name")),
        platform.processor() or platform.machine(),
    )
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {"cpu": cpu, "cores": len(os.sched_getaffinity(0)), "memory_bytes": memory, "system": _system()}


def _system() -> str:
    """The distribution and its C library; what a kernel was built as says nothing about latency."""
    try:
        name = platform.freedesktop_os_release()["PRETTY_NAME"]
    except OSError:
        name = platform.system()
    return " ".join(filter(None, (name, platform.machine(), *platform.libc_ver())))


def _versions() -> Iterator[tuple[str, str]]:
    for package in PACKAGES:
        try:
            yield package, metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
