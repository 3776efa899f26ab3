"""Nothing got worse: size, delegation, planned memory and error of every artifact, beside the
committed reference.
"""

import copy
import json
import runpy
import sys
from pathlib import Path

import emulated
import pytest
import reference
from conftest import server_of
from reference import MODELS, measured, read, worse

UPDATE = Path(__file__).parent.parent / "scripts" / "update-reference"


@pytest.mark.parametrize("name", MODELS)
def test_no_artifact_is_worse_than_the_reference(name, request):
    edge = request.getfixturevalue(name)
    for folder in (edge, server_of(edge)) if name != "micro" else (edge,):
        key = f"{MODELS[name]}/{folder.name}"
        assert worse(measured(folder), read()["artifacts"][key]) == [], (
            f"{key}: if it is meant to be so, scripts/update-reference"
        )


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda a: a.update(size_bytes=a["size_bytes"] * 2), ["size_bytes"]),
        (lambda a: a["methods"]["detect"].update(delegates=2), ["detect: delegates 2, was 1"]),
        (
            lambda a: a["methods"]["detect"].update(nodes_outside=1, planned_memory_bytes=10**9),
            ["planned_memory_bytes", "nodes_outside 1, was 0"],
        ),
        (lambda a: a["methods"]["detect"].update(max_abs_relative=1e-4), ["max_abs_relative"]),
        (lambda a: a["methods"].pop("detect"), ["methods"]),
        (lambda a: a.update(size_bytes=1), []),
        (
            lambda a: a["methods"]["detect"].update(
                max_abs_relative=4.8 * a["methods"]["detect"]["max_abs_relative"]
            ),
            [],
        ),  # on another kind of CPU
    ],
)
def test_what_is_worse_is_said(change, said):
    reference = read()["artifacts"]["yolo11n-pose/edge"]
    found = copy.deepcopy(reference)
    change(found)
    lines = worse(found, reference)
    assert len(lines) == len(said) and all(part in line for part, line in zip(said, lines)), lines


@pytest.mark.parametrize(
    ("failed", "counted"), [(None, True), ("board", True), ("runners", False), ("instructions", False)]
)
def test_only_a_program_that_answers_right_on_the_board_is_counted(failed, counted, tmp_path, monkeypatch):
    def emulate(folder, board, method):
        found = [
            {"check": check, "measured": "2.0e-01 off"} for check in ("runners", "instructions", "board")
        ]
        return [
            each
            | {"passed": each["check"] != failed, "method": method, "details": {"instructions": {"all": 7}}}
            for each in found
        ]

    monkeypatch.setattr(emulated, "emulate", emulate)
    monkeypatch.setattr(reference, "FILE", tmp_path / "reference.json")
    monkeypatch.setattr(
        sys,
        "argv",
        ["update-reference", str(tmp_path), "--emulate", "--model", "yolo", "--board", "raspberry_pi_5"],
    )
    if counted:
        runpy.run_path(str(UPDATE), run_name="__main__")
    else:
        with pytest.raises(
            SystemExit,
            match=f"raspberry_pi_5 yolo11n-pose detect is not counted: {failed} failed, 2.0e-01 off",
        ):
            runpy.run_path(str(UPDATE), run_name="__main__")
    counts = json.loads((tmp_path / "reference.json").read_text())["instructions"]
    assert counts == ({"raspberry_pi_5": {"yolo11n-pose/detect": 7}} if counted else {})
