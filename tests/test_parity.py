"""Phone and server beside each other, from their files alone."""

import dataclasses
import json
import shutil
import struct
from pathlib import Path

import pytest
import torch
from in_process import run_command
from manifests import manifest_of
from safetensors.torch import load_file, save_file

from edgeexport.artifact.folder import record
from edgeexport.errors import UsageError
from edgeexport.method import Option, Pipeline
from edgeexport.verify.parity import FILES, parity, write
from edgeexport.verify.parity.pipelines import compare_results, run_pipeline


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
    manifest["files"]["golden.safetensors"] = vars(record(copy / "golden.safetensors"))
    (copy / "manifest.json").write_text(json.dumps(manifest))
    return copy


def test_eager_and_both_programs_agree_pair_by_pair(both, tmp_path):
    found = parity(both)
    assert found.passed, found
    assert [line.pair for line in found.lines] == [
        "eager ~ ExportedProgram",
        "eager ~ xnnpack-fp32",
        "eager ~ aoti-fp32",
        "ExportedProgram ~ xnnpack-fp32",
        "ExportedProgram ~ aoti-fp32",
        "xnnpack-fp32 ~ aoti-fp32",
    ]
    assert all(line.cases == 4 and line.max_abs_relative < 1e-5 for line in found.lines)
    assert all(line.max_abs_relative > 0 for line in found.lines[1:]), "they compute in other orders"
    write(found, tmp_path)
    data = json.loads((tmp_path / FILES[0]).read_text())
    page = (tmp_path / FILES[1]).read_text()
    assert (
        data["passed"]
        and len(data["lines"]) == 6
        and "the same everywhere" in page
        and page.count('class="bar ') == 6
    )


def test_one_answer_that_differs_fails_its_pairs_and_names_the_case(both, tmp_path):
    def change(golden):
        golden["classify/1/logits"][0, 3] += 0.5

    copy = with_golden(both[0], tmp_path, change)
    found = parity([copy, both[1]])
    assert [line.passed for line in found.lines] == [False] * 3 + [True] * 3
    assert found.places == (
        "classify: the ExportedProgram itself does not say what eager said; it was so before any target",
    )
    assert "batch=2" in found.lines[0].worst_case and "NOT the same" in write_page(found, tmp_path)


def write_page(found, folder):
    write(found, folder)
    return (folder / FILES[1]).read_text()


def test_a_program_that_does_not_answer_is_a_failure_with_the_reason(both, tmp_path):
    copy = Path(shutil.copytree(both[1], tmp_path / "server"))
    (copy / "toy.pt2").write_bytes(b"no archive")
    manifest = json.loads((copy / "manifest.json").read_text())
    manifest["files"]["toy.pt2"] = vars(record(copy / "toy.pt2"))
    (copy / "manifest.json").write_text(json.dumps(manifest))
    found = parity([both[0], copy])
    failed = {line.pair: line.message for line in found.lines if not line.passed}
    assert list(failed) == ["eager ~ aoti-fp32", "ExportedProgram ~ aoti-fp32", "xnnpack-fp32 ~ aoti-fp32"]
    assert all("cannot load" in message for message in failed.values())


def test_artifacts_of_different_ranges_are_compared_where_they_meet(both, toy_artifact):
    found = parity([toy_artifact.path, both[1]])
    assert found.passed and {line.pair: line.cases for line in found.lines} == {
        "eager ~ ExportedProgram": 4,
        "eager ~ xnnpack-fp32": 7,
        "eager ~ aoti-fp32": 4,
        "ExportedProgram ~ xnnpack-fp32": 4,
        "ExportedProgram ~ aoti-fp32": 4,
        "xnnpack-fp32 ~ aoti-fp32": 4,
    }


def test_artifacts_of_other_weights_and_no_artifacts_are_refused(both, tmp_path):
    other = Path(shutil.copytree(both[1], tmp_path / "other"))
    manifest = json.loads((other / "manifest.json").read_text())
    manifest["weights"]["sha256"] = "0" * 64
    (other / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(UsageError, match="not of the same weights"):
        parity([both[0], other])
    with pytest.raises(UsageError, match="given twice"):
        parity([both[0], both[0]])
    with pytest.raises(UsageError, match="at least one"):
        parity([])


def test_the_command_writes_nothing_over_a_report_and_exits_with_1_on_a_difference(both, tmp_path):
    def run(*arguments):
        return run_command("parity", *arguments)

    done = run(*both, "--out", tmp_path / "report")
    assert done.returncode == 0 and "xnnpack-fp32 ~ aoti-fp32" in done.stdout, done.stderr
    again = run(*both, "--out", tmp_path / "report")
    assert again.returncode == 2 and "--force" in again.stderr and "Traceback" not in again.stderr
    wrong = with_golden(both[0], tmp_path, lambda golden: golden["classify/0/logits"].add_(1.0))
    done = run(wrong, both[1], "--out", tmp_path / "report", "--force", "--json")
    assert (
        done.returncode == 1
        and "comparisons failed: classify eager" in done.stderr
        and not json.loads(done.stdout)["passed"]
    )
    assert run(*both, "--input", "image").returncode == 2


def results(**changes):
    same = {
        "text": "a cat",
        "token": 40_000,
        "mask_pixels": 40_000,
        "scores": [0.5, 0.25],
        "found": [{"label": 3, "box": [1.0, 2.0]}],
        "note": None,
    }
    return {"edge": same, "server": {**same, **changes}}


@pytest.mark.parametrize(
    "changes",
    [{}, {"scores": [0.5004, 0.25]}, {"found": [{"label": 3, "box": [1.0, 2.001]}]}, {"mask_pixels": 40_010}],
)
def test_results_that_mean_the_same(changes):
    assert list(compare_results(results(**changes))) == []


def test_things_of_equal_rank_may_change_places_but_none_may_be_another():
    cat, dog, cow = (
        {"label": label, "box": [float(place), 0.0]} for label, place in ((1, 10), (2, 20), (3, 30))
    )
    assert (
        list(compare_results({"edge": {"found": [cat, dog, cow]}, "server": {"found": [dog, cat, cow]}}))
        == []
    )
    twice = list(compare_results({"edge": {"found": [cat, dog, cow]}, "server": {"found": [cat, cat, cow]}}))
    assert [d.place for d in twice] == ["result.found[1].label", "result.found[1].box[0]"]


@pytest.mark.parametrize(
    ("changes", "place"),
    [
        ({"text": "a dog"}, "result.text"),
        ({"token": 40_001}, "result.token"),
        ({"mask_pixels": 40_100}, "result.mask_pixels"),
        ({"scores": [0.6, 0.25]}, "result.scores[0]"),
        ({"scores": [0.5]}, "result.scores"),
        ({"found": [{"label": 4, "box": [1.0, 2.0]}]}, "result.found[0].label"),
        ({"scores": [0.25, 0.5]}, "result.scores[0]"),
        ({"note": "x"}, "result.note"),
        ({"scores": [float("nan"), 0.25]}, "result.scores[0]"),
    ],
)
def test_results_that_differ_and_where(changes, place):
    difference, *_ = compare_results(results(**changes))
    assert difference.place == place and difference.sides == "edge ~ server"


def test_pipelines_run_on_made_samples_and_their_pictures_are_compared(tmp_path):
    """A pipeline that copies its photo: the samples are real files, the written picture is in the
    result.
    """
    from PIL import Image

    def run(program, photo, sound, frames, dot, mask, clip=3):
        image = Image.open(photo)
        for x in range(dot):
            image.paste((255, 0, 0), (30 * x, 0, 30 * x + 30, 30))
        image.save(mask, format="PNG")
        return {
            "photo": photo,
            "nested": [{"photo": photo}],
            "bytes": Path(sound).stat().st_size,
            "frames": len(list(Path(frames).iterdir())),
            "said": "edge fp32 of the film",
        }

    def options(dot):
        return (
            Option("photo", "", "file", sample="photo"),
            Option("sound", "", "file", sample="sound"),
            Option("frames", "", "file", sample="frames"),
            Option("dot", "", "number", sample=dot),
            Option("mask", "", "output", sample="compared"),
            Option("overlay", "", "output"),
        )

    class Program:
        manifest = manifest_of({}, target="edge")

    found = {}
    for dot in (0, 1):
        (tmp_path / str(dot)).mkdir()
        found[str(dot)] = run_pipeline(Program, Pipeline(options(dot), run), tmp_path / str(dot), {})
    assert (
        found["0"]["frames"] == 32
        and found["0"]["bytes"] == 44 + 160_000
        and found["0"]["said"] == " of the film"
        and "photo" not in found["0"]
    )
    assert found["0"]["nested"] == [{}]
    assert list(compare_results({"0": found["0"], "again": found["0"]})) == []
    (difference,) = compare_results(found)
    assert difference.place == "result.mask" and "0.29% of its pixels differ" in difference.other


def with_one_weight_changed(path, folder, file, find):
    """A copy whose program has one other number in one weight, and a manifest that vouches for
    it.
    """
    copy = Path(shutil.copytree(path, folder / "damaged"))
    content = bytearray((copy / file).read_bytes())
    place = content.find(find)
    assert place > 0, "the weight is in the file as it is"
    content[place : place + 4] = struct.pack("<f", 7.0)
    (copy / file).write_bytes(content)
    manifest = json.loads((copy / "manifest.json").read_text())
    manifest["files"][file] = vars(record(copy / file))
    (copy / "manifest.json").write_text(json.dumps(manifest))
    return copy


def head_of_the_toy():
    from toy import Toy

    from edgeexport.modeling.weights import randomize

    module = Toy().eval()
    randomize(module, 0)
    return module.head.weight.detach().numpy().tobytes()


@pytest.mark.parametrize(("side", "file"), [(0, "toy.pte"), (1, "toy.pt2")])
def test_one_corrupted_weight_is_caught_and_located(both, tmp_path, side, file):
    damaged = with_one_weight_changed(both[side], tmp_path, file, head_of_the_toy())
    found = parity([damaged if index == side else path for index, path in enumerate(both)])
    assert not found.passed
    (place,) = found.places
    assert (
        "classify: the weight 'head.weight' is another" in place
        and "in head (" in place
        and "self.head(x.mean(1))" in place
    ), place


def test_a_corrupted_weight_without_the_exported_programs_says_what_is_needed(both, tmp_path):
    damaged = with_one_weight_changed(both[0], tmp_path, "toy.pte", head_of_the_toy())
    (place,) = parity([damaged]).places
    assert "server artifact of the same build" in place


def test_a_pass_that_changes_the_numbers_is_named(both, tmp_path, monkeypatch):
    from edgeexport.artifact.folder import open_artifact
    from edgeexport.compiler.rewrite import PassResult
    from edgeexport.verify.parity import locate as module

    def double_the_head(program):
        program.state_dict["head.weight"] = torch.nn.Parameter(program.state_dict["head.weight"] * 2.0)
        return PassResult(program, True, 1)

    artifact, kept = open_artifact(both[0]), open_artifact(both[1])
    recipe = module._recipe(artifact)
    broken = dataclasses.replace(recipe, passes=(*recipe.passes[:2], double_the_head, *recipe.passes[2:]))
    monkeypatch.setattr(module, "_recipe", lambda artifact: broken)
    monkeypatch.setattr(module, "_weights", lambda *arguments: ())
    (place,) = module.locate(artifact, kept, "classify")
    assert "the pass double_the_head changes the numbers" in place.what


def test_a_module_that_is_lowered_to_something_else_is_found(both, monkeypatch):
    """A recipe that emits another program than it is given: from the patch embedding on everything
    differs, and that is named.
    """
    from edgeexport.artifact.folder import open_artifact
    from edgeexport.verify.parity import locate as module

    artifact, kept = open_artifact(both[0]), open_artifact(both[1])
    recipe = module._recipe(artifact)

    class Wrong:
        passes = recipe.passes

        def emit(self, programs, path):
            for program in programs.values():
                name = next(n for n in program.state_dict if "norm.weight" in n or "norm_weight" in n)
                program.state_dict[name] = torch.nn.Parameter(program.state_dict[name] + 1.0)
            return recipe.emit(programs, path)

    monkeypatch.setattr(module, "_recipe", lambda artifact: Wrong())
    monkeypatch.setattr(module, "_weights", lambda *arguments: ())
    (place,) = module.locate(artifact, kept, "classify")
    assert place.module == "norm" and "self.qkv(self.norm(x))" in place.source, place
