"""Phone and server beside each other, from their files alone."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import TOY
from safetensors.torch import load_file, save_file

from edgeexport.artifact import record
from edgeexport.build import build_targets
from edgeexport.errors import UsageError
from edgeexport.method import Option, Pipeline
from edgeexport.parity import FILES, parity, write
from edgeexport.parity.pipelines import compare_results, run_pipeline


@pytest.fixture(scope="module")
def both(toy_both):
    return [a.path for a in toy_both]


def with_golden(path, folder, change):
    """A copy whose golden answers are others: eager said something else."""
    copy = Path(shutil.copytree(path, folder / "copy"))
    golden = load_file(copy / "golden.safetensors")
    change(golden)
    save_file(golden, copy / "golden.safetensors")
    manifest = json.loads((copy / "manifest.json").read_text())
    manifest["files"]["golden.safetensors"] = record(copy / "golden.safetensors")
    (copy / "manifest.json").write_text(json.dumps(manifest))
    return copy


def test_eager_and_both_programs_agree_pair_by_pair(both, tmp_path):
    found = parity(both)
    assert found.passed, found
    assert [line.pair for line in found.lines] == ["eager ~ xnnpack-fp32", "eager ~ aoti-fp32", "xnnpack-fp32 ~ aoti-fp32"]
    assert all(line.cases == 4 and 0 < line.max_abs_relative < 1e-5 for line in found.lines)
    write(found, tmp_path)
    data = json.loads((tmp_path / FILES[0]).read_text())
    page = (tmp_path / FILES[1]).read_text()
    assert data["passed"] and len(data["lines"]) == 3 and "the same everywhere" in page and page.count('class="bar ') == 3


def test_one_answer_that_differs_fails_its_pairs_and_names_the_case(both, tmp_path):
    def change(golden):
        golden["classify/1/logits"][0, 3] += 0.5

    copy = with_golden(both[0], tmp_path, change)
    found = parity([copy, both[1]])
    assert [line.passed for line in found.lines] == [False, False, True]
    assert "batch=2" in found.lines[0].worst_case and "NOT the same" in write_page(found, tmp_path)


def write_page(found, folder):
    write(found, folder)
    return (folder / FILES[1]).read_text()


def test_a_program_that_does_not_answer_is_a_failure_with_the_reason(both, tmp_path):
    copy = Path(shutil.copytree(both[1], tmp_path / "server"))
    (copy / "toy.pt2").write_bytes(b"no archive")
    manifest = json.loads((copy / "manifest.json").read_text())
    manifest["files"]["toy.pt2"] = record(copy / "toy.pt2")
    (copy / "manifest.json").write_text(json.dumps(manifest))
    found = parity([both[0], copy])
    assert not found.passed and [line.passed for line in found.lines] == [True, False, False]
    assert "cannot load" in found.lines[1].message


def test_artifacts_of_different_ranges_are_compared_where_they_meet(both, tmp_path):
    (wide,) = build_targets(TOY, weights="random", batch="1:7", outs=(tmp_path / "wide",))
    found = parity([wide.path, both[1]])
    assert found.passed and [line.cases for line in found.lines] == [5, 4, 4]


def test_artifacts_of_other_weights_and_no_artifacts_are_refused(both, tmp_path):
    (other,) = build_targets(TOY, weights="random:1", batch="1:3", outs=(tmp_path / "other",))
    with pytest.raises(UsageError, match="not of the same weights"):
        parity([both[0], other.path])
    with pytest.raises(UsageError, match="given twice"):
        parity([both[0], both[0]])
    with pytest.raises(UsageError, match="at least one"):
        parity([])


def test_the_command_writes_nothing_over_a_report_and_exits_with_1_on_a_difference(both, tmp_path):
    def run(*arguments):
        return subprocess.run([sys.executable, "-m", "edgeexport", "parity", *map(str, arguments)], capture_output=True, text=True)

    done = run(*both, "--out", tmp_path / "report")
    assert done.returncode == 0 and "xnnpack-fp32 ~ aoti-fp32" in done.stdout, done.stderr
    again = run(*both, "--out", tmp_path / "report")
    assert again.returncode == 2 and "--force" in again.stderr and "Traceback" not in again.stderr
    wrong = with_golden(both[0], tmp_path, lambda golden: golden["classify/0/logits"].add_(1.0))
    done = run(wrong, both[1], "--out", tmp_path / "report", "--force", "--json")
    assert done.returncode == 1 and "comparisons failed: classify eager" in done.stderr and not json.loads(done.stdout)["passed"]
    assert run(*both, "--input", "image").returncode == 2


def results(**changes):
    same = {"text": "a cat", "scores": [0.5, 0.25], "found": [{"label": 3, "box": [1.0, 2.0]}], "note": None}
    return {"edge": same, "server": {**same, **changes}}


@pytest.mark.parametrize("changes", [{}, {"scores": [0.5004, 0.25]}, {"found": [{"label": 3, "box": [1.0, 2.001]}]}])
def test_results_that_mean_the_same(changes):
    assert list(compare_results(results(**changes))) == []


@pytest.mark.parametrize(
    ("changes", "place"),
    [
        ({"text": "a dog"}, "result.text"), ({"scores": [0.6, 0.25]}, "result.scores[0]"), ({"scores": [0.5]}, "result.scores"),
        ({"found": [{"label": 4, "box": [1.0, 2.0]}]}, "result.found[0].label"), ({"note": "x"}, "result.note"), ({"scores": [float("nan"), 0.25]}, "result.scores[0]"),
    ],
)  # fmt: skip
def test_results_that_differ_and_where(changes, place):
    (difference,) = compare_results(results(**changes))
    assert difference.place == place and difference.sides == "edge ~ server"


def test_pipelines_run_on_made_samples_and_their_pictures_are_compared(tmp_path):
    """A pipeline that copies its photo: the samples are real files, the written picture is in the result."""
    from PIL import Image

    def run(program, photo, sound, frames, dot, mask, clip=3):
        image = Image.open(photo)
        for x in range(dot):
            image.paste((255, 0, 0), (30 * x, 0, 30 * x + 30, 30))
        image.save(mask, format="PNG")
        return {"photo": photo, "bytes": Path(sound).stat().st_size, "frames": len(list(Path(frames).iterdir())), "said": "edge fp32 of the film"}

    def options(dot):
        return (
            Option("photo", "", "file", sample="photo"), Option("sound", "", "file", sample="sound"), Option("frames", "", "file", sample="frames"),
            Option("dot", "", "number", sample=dot), Option("mask", "", "output", sample="compared"), Option("overlay", "", "output"),
        )  # fmt: skip

    class Program:
        manifest = {"target": "edge", "precision": "fp32"}

    found = {}
    for dot in (0, 1):
        (tmp_path / str(dot)).mkdir()
        found[str(dot)] = run_pipeline(Program, Pipeline(options(dot), run), tmp_path / str(dot), {})
    assert found["0"]["frames"] == 32 and found["0"]["bytes"] == 44 + 160_000 and found["0"]["said"] == " of the film" and "photo" not in found["0"]
    assert list(compare_results({"0": found["0"], "again": found["0"]})) == []
    (difference,) = compare_results(found)
    assert difference.place == "result.mask" and "0.29% of its pixels differ" in difference.other
