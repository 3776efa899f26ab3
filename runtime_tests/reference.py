"""What the models' artifacts measured, to hold the next ones against: `reference.json`, which
scripts/update-reference writes.
"""

import json
from pathlib import Path

from edgeexport.artifact.folder import open_artifact

MODELS = {
    "sam2": "sam2",
    "edgetam": "edgetam",
    "mvit": "mvit",
    "whisper": "whisper-tiny.en",
    "blip": "blip",
    "yolo": "yolo11n-pose",
    "micro": "micro-mvit",
}
"""The models that are held against the reference: the tests' fixtures, and the folders of their
artifacts.
"""

FILE = Path(__file__).with_name("reference.json")

GROWTH = 1.01
"""Files and planned memory may grow by this: compilers and serializers pad.

Delegates and instructions are counts, and have none.
"""

ERROR_GROWTH, LEAST_ERROR = 8.0, 2e-6
"""An error of rounding moves with the CPU's order of sums: Whisper's `prefill` on the server has
1.5e-6 where PyTorch computes with AVX2, 7.0e-6 where with AVX-512 (4.7 times; twice is next among
all). Below the least it is noise of float32.
"""

INSTRUCTIONS = 1e-3
"""Share by which a count of instructions may move; the same program gives the same number."""


def measured(folder: Path) -> dict:
    """Size, and for each method delegation, planned memory and the largest error over the range,
    from an artifact's manifest.
    """
    manifest = open_artifact(folder).manifest
    errors: dict[str, float] = {}
    for finding in manifest.findings:
        for figures in finding.details.values() if finding.check == "numerics" else ():
            if isinstance(figures, dict) and "max_abs_relative" in figures:
                errors[finding.method] = max(errors.get(finding.method, 0.0), figures["max_abs_relative"])
    methods = {}
    for entry in manifest.methods:
        facts = {"max_abs_relative": errors[entry.name], "planned_memory_bytes": entry.planned_memory_bytes}
        if entry.delegation:
            outside = sum(each.count for each in entry.delegation.outside)
            facts |= {"delegates": entry.delegation.delegates, "nodes_outside": outside}
        methods[entry.name] = facts
    return {"size_bytes": manifest.program_file.size_bytes, "methods": methods}


def worse(found: dict, reference: dict) -> list[str]:
    """What of `found` is worse than the reference allows, in words."""
    said = []
    if found["size_bytes"] > GROWTH * reference["size_bytes"]:
        said.append(f"size_bytes {found['size_bytes']}, was {reference['size_bytes']}")
    if found["methods"].keys() != reference["methods"].keys():
        said.append(f"methods {sorted(found['methods'])}, were {sorted(reference['methods'])}")
    for name in found["methods"].keys() & reference["methods"].keys():
        now, was = found["methods"][name], reference["methods"][name]
        limits = {
            "max_abs_relative": max(ERROR_GROWTH * was["max_abs_relative"], LEAST_ERROR),
            "planned_memory_bytes": GROWTH * (was["planned_memory_bytes"] or 0),
            "delegates": was.get("delegates"),
            "nodes_outside": was.get("nodes_outside"),
        }
        said += [
            f"{name}: {what} {now[what]}, was {was[what]}"
            for what, limit in limits.items()
            if now.get(what) is not None and now[what] > limit
        ]
    return said


def read() -> dict:
    """The committed reference: artifacts by MODEL/SIDE, and instructions a call by
    BOARD/MODEL/METHOD.
    """
    return json.loads(FILE.read_text(encoding="utf-8"))


def write(reference: dict) -> None:
    FILE.write_text(json.dumps(reference, indent=1, sort_keys=True) + "\n", encoding="utf-8")
