"""Tables of figures, from the files that measured them: `runtime_tests/reference.json` and
`docs/benchmarks/*.json`. No figure of these tables is typed by hand.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from edgeexport import catalog, text

ROOT = Path(__file__).resolve().parents[2]
REFERENCE = ROOT / "runtime_tests" / "reference.json"
BENCHMARKS = ROOT / "docs" / "benchmarks"

UNKNOWN = "not recorded"
SIDES = {"edge": "`.pte` (xnnpack)", "server": "`.pt2` (aoti)"}
"""What `reference.json` calls the artifacts of a model, and what a reader calls them."""


def read_reference() -> dict[str, Any]:
    return json.loads(REFERENCE.read_text(encoding="utf-8"))


def read_benches(folder: Path = BENCHMARKS) -> dict[str, dict[str, Any]]:
    """Every latency file of `folder`, by name."""
    return {path.name: json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*.json"))}


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def error(method: Mapping[str, Any]) -> str:
    """A method's error over the range; as code, which is not broken at the hyphen."""
    return f"`{text.error(method['max_abs_relative'])}`"


def sizes_table(reference: Mapping[str, Any]) -> str:
    """A row a model, a column a kind of program: the size of its file."""
    sides = _sides(reference)
    artifacts = reference["artifacts"]
    rows = [
        (f"`{model}`", *(text.size(artifacts[key]["size_bytes"]) if key in artifacts else "" for key in keys))
        for model, keys in ((m, [f"{m}/{side}" for side in sides]) for m in _models(reference))
    ]
    return table(("model", *(SIDES.get(side, side) for side in sides)), rows)


def methods_table(reference: Mapping[str, Any]) -> str:
    """A row a method: what runs outside the delegates, planned memory, errors."""
    sides = _sides(reference)
    artifacts = reference["artifacts"]
    rows = []
    for model in _models(reference):
        found = {s: artifacts[f"{model}/{s}"]["methods"] for s in sides if f"{model}/{s}" in artifacts}
        edge = found.get("edge", {})
        for name in dict.fromkeys(name for methods in found.values() for name in methods):
            facts = edge.get(name, {})
            planned = facts.get("planned_memory_bytes")
            rows.append(
                (
                    f"`{model}`",
                    f"`{name}`",
                    *(str(facts.get(key, "")) for key in ("delegates", "nodes_outside")),
                    "" if planned is None else text.size(planned),
                    *(error(found[s][name]) if name in found.get(s, {}) else "" for s in sides),
                )
            )
    errors = (f"error, {SIDES.get(side, side)}" for side in sides)
    return table(("model", "method", "delegates", "nodes outside", "planned memory", *errors), rows)


def instructions_table(reference: Mapping[str, Any]) -> str:
    """A row a method, a column a board: millions of instructions of a call."""
    counts = reference["instructions"]
    names = sorted({name for board in counts.values() for name in board})
    rows = [
        (
            *(f"`{part}`" for part in name.split("/")),
            *(f"{counts[board][name] / 1e6:,.1f}" if name in counts[board] else "" for board in counts),
        )
        for name in names
    ]
    return table(("model", "method", *(f"`{board}`" for board in counts)), rows)


def benches_text(benches: Mapping[str, dict[str, Any]]) -> str:
    """One section a model, one table a file, with when, where and by which command."""
    if not benches:
        return "No latency file is in `docs/benchmarks` yet.\n"
    parts = []
    for model in sorted({found["model"] for found in benches.values()}):
        parts.append(f"### {model}\n")
        for file, found in benches.items():
            if found["model"] == model:
                parts += [_where(file, found), _latency_table(found), _noise(found), _memory_table(found)]
    return "\n".join(part for part in parts if part)


def _where(file: str, found: Mapping[str, Any]) -> str:
    machine, versions = found["machine"], found["versions"]
    board = f"- Board: `{found['board']}`\n" if "board" in found else ""
    return (
        f"```\n{found.get('command', f'command: {UNKNOWN}')}\n```\n\n"
        f"- Date: {found.get('date', UNKNOWN)}\n"
        f"{board}"
        f"- Machine: {machine['cpu']}, {machine['cores']} cores, {text.size(machine['memory_bytes'])},"
        f" {machine['system']}\n"
        f"- Versions: {', '.join(f'{name} {version}' for name, version in sorted(versions.items()))}\n"
        f"- Weights: sha256 `{found['weights_sha256'][:12]}...`\n"
        f"- File: `docs/benchmarks/{file}`\n"
    )


def _latency_table(found: Mapping[str, Any]) -> str:
    names = list(dict.fromkeys(c["name"] for row in found["rows"] for c in row["contenders"]))
    rows = []
    for row in found["rows"]:
        by_name = {contender["name"]: contender for contender in row["contenders"]}
        rows.append(
            (
                f"`{row['method']}`",
                text.sizes_label(row["sizes"]),
                str(row["threads"]),
                str(row["rounds"]),
                *(_cell(by_name.get(name)) for name in names),
            )
        )
    baseline = ", ".join(sorted({row["baseline"] for row in found["rows"]}))
    head = ("method", "sizes", "threads", "rounds", *(f"{name}, ms" for name in names))
    said = f"Median latency; in brackets the ratio to {baseline}, and its spread over single rounds.\n\n"
    return said + table(head, rows)


def _cell(contender: Mapping[str, Any] | None) -> str:
    if contender is None:
        return ""
    if "error" in contender:
        return f"not measured: {contender['error']}".replace("|", "\\|").replace("\n", " ")
    latency, ratio = text.milliseconds(contender["p50_ms"]), contender["ratio"]
    if ratio is None:
        return latency
    return f"{latency} ({ratio['median']:.2f} x, {ratio['low']:.2f} to {ratio['high']:.2f})"


def _noise(found: Mapping[str, Any]) -> str:
    said = [
        f"{100 * noise['spread']:.0f} % with {noise['threads']} thread{'s'[: noise['threads'] > 1]}"
        for noise in found["noise"]
    ]
    return f"The machine's noise (spread of a fixed loop between the rounds): {', '.join(said)}.\n" * bool(
        said
    )


def _memory_table(found: Mapping[str, Any]) -> str:
    keys = ("rss_before_bytes", "rss_loaded_bytes", "rss_steady_bytes", "peak_rss_bytes", "planned_bytes")
    rows = [
        (
            entry["artifact"],
            f"`{entry['method']}`",
            *("" if entry[key] is None else text.size(entry[key]) for key in keys),
        )
        for entry in found["memory"]
    ]
    head = ("memory", "method", "before", "loaded", "steady", "at most", "planned")
    return table(head, rows) if rows else ""


def readme_block(reference: Mapping[str, Any], benches: Mapping[str, dict[str, Any]]) -> str:
    """The README's handful: a row a model that is held against the reference."""
    sides = _sides(reference)
    variants = catalog.variants()
    full = {alias: name for name, facts in variants.items() for alias in (name, *facts["aliases"])}
    rows = []
    for model in _models(reference):
        if model not in full:
            continue  # the micro models of the tests are nobody's choice
        latency = {side: _beside_eager(side, full[model], benches) for side in sides}
        rows.append(
            (
                f"`{model}`",
                variants[full[model]]["summary"],
                *(_facts(reference["artifacts"].get(f"{model}/{side}"), latency[side]) for side in sides),
            )
        )
    return table(("model", "what it is", *(SIDES.get(side, side) for side in sides)), rows)


def _facts(artifact: Mapping[str, Any] | None, latency: str) -> str:
    if artifact is None:
        return ""
    worst = max(artifact["methods"].values(), key=lambda method: method["max_abs_relative"])
    parts = (text.size(artifact["size_bytes"]), f"error {error(worst)}", latency)
    return ", ".join(part for part in parts if part)


def _beside_eager(side: str, model: str, benches: Mapping[str, dict[str, Any]]) -> str:
    """Latency of the costliest method over eager's, with 1 thread on the machine itself, in the
    file that comes last.
    """
    target = {"edge": "xnnpack-fp32", "server": "aoti-fp32"}.get(side, side)
    said = ""
    for found in benches.values():
        rows = [
            contender
            for row in found["rows"]
            for contender in row["contenders"]
            if row["threads"] == 1
            and row["baseline"] == "eager"
            and contender["name"] == target
            and contender.get("ratio")
        ]
        if found["model"] == model and "board" not in found and rows:
            costliest = max(rows, key=lambda contender: contender["p50_ms"])
            said = f"{costliest['ratio']['median']:.2f} x eager's time"
    return said


def _models(reference: Mapping[str, Any]) -> list[str]:
    return sorted({key.split("/")[0] for key in reference["artifacts"]})


def _sides(reference: Mapping[str, Any]) -> list[str]:
    return sorted({key.split("/")[1] for key in reference["artifacts"]})
