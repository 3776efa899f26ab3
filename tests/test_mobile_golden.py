"""Records of pipelines: what is in them, token by token, and that every array can be read again."""

import json
from dataclasses import replace

import fake_programs
import numpy as np
import pytest
import torch
import toy_text
from PIL import Image

from edgeexport.catalog import model
from edgeexport.errors import ArtifactError
from edgeexport.pipelines import NAMES, captions
from edgeexport.runtime.program import Program
from edgeexport.ship.mobile.golden import (
    FILE,
    RUNS,
    TENSORS,
    Golden,
    Recorder,
    Stored,
    pipeline_name,
    record,
    recorded_run,
    write,
)


@pytest.fixture(scope="module")
def text_artifact(text_both):
    return text_both[0]


def array(folder, tensor):
    """A tensor of a written record."""
    return np.frombuffer(
        (folder / TENSORS / tensor["file"]).read_bytes(), dtype=np.dtype(tensor["dtype"])
    ).reshape(tensor["shape"])


def test_a_prompt_is_recorded_token_by_token_and_says_the_same(text_artifact):
    about = Program(text_artifact)["encode"](
        torch.randn(1, toy_text.LENGTH, toy_text.WIDTH, generator=torch.Generator().manual_seed(3))
    )
    said = captions.generate(Program(text_artifact), [1, 7, 9], 3, about)
    recorder = Recorder(Program(text_artifact))
    assert captions.generate(recorder, [1, 7, 9], 3, about) == said and len(said) == 3
    assert [c["method"] for c in recorder.calls] == ["decode_step"] * 5
    tokens, positions = ([int(c["inputs"][i].values.flat[0]) for c in recorder.calls] for i in (0, 1))
    assert tokens == [1, 7, 9, *said[:2]] and positions == [0, 1, 2, 3, 4]


def test_cases_can_be_called_in_their_order(text_artifact, tmp_path):
    write(record(text_artifact), tmp_path / "golden")
    written = json.loads((tmp_path / "golden" / FILE).read_text())
    assert written["pipeline"] is None and written["runs"] == [] and written["format"] == 1
    assert written["program_sha256"] == text_artifact.manifest.program_file.sha256
    assert [c["method"] for c in written["cases"]] == ["encode", "prefill", "decode_step", "decode_step"]
    program = Program(text_artifact)
    for case in [c for c in written["cases"] if c["method"] != "prefill"]:
        answers = program.call(
            case["method"], *(torch.from_numpy(array(tmp_path / "golden", t).copy()) for t in case["inputs"])
        )
        for answer, wanted in zip(answers, case["outputs"]):
            wanted = torch.from_numpy(array(tmp_path / "golden", wanted).copy())
            assert float((answer - wanted).abs().max()) <= case["max_abs_relative"] * float(
                wanted.max() - wanted.min()
            )


def test_a_record_is_written_whole_with_equal_arrays_once(tmp_path):
    values = np.arange(6, dtype=np.float32).reshape(2, 3)
    tensor = Stored({"name": "x", "dtype": "float32", "shape": [2, 3]}, values.T.copy().T)
    run = {
        "inputs": {"image": Stored({"kind": "image"}, np.zeros((1, 2, 3), np.uint8))},
        "calls": [{"inputs": [tensor], "outputs": [tensor]}],
    }
    write(Golden("m", "m.pte", "0" * 64, "pose", (run,), ()), tmp_path / "golden")
    (said,) = json.loads((tmp_path / "golden" / FILE).read_text())["runs"]
    (call,) = said["calls"]
    assert call["inputs"] == call["outputs"] and np.array_equal(
        array(tmp_path / "golden", call["inputs"][0]), values
    )
    assert (
        len(list((tmp_path / "golden" / TENSORS).iterdir())) == 2
        and said["inputs"]["image"]["kind"] == "image"
    )
    with pytest.raises(ArtifactError, match="exists already"):
        write(Golden("m", "m.pte", "0" * 64, None, (), ()), tmp_path / "golden")
    assert [p.name for p in tmp_path.iterdir()] == ["golden"]


@pytest.mark.parametrize(
    ("name", "given", "inputs", "results"),
    [
        (
            "segmentation",
            RUNS["segmentation"][1],
            {"image", "points", "boxes", "masks"},
            {"iou_score", "object_score", "mask"},
        ),
        ("captions", RUNS["captions"][0], {"image", "max_tokens"}, {"caption", "token_ids"}),
        ("speech", {}, {"audio", "task"}, {"text", "language", "segments", "token_ids"}),
        ("video", RUNS["video"][0], {"video", "clips"}, {"top5"}),
        ("pose", {}, {"image", "confidence", "iou", "limit"}, {"people"}),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_run_has_the_inputs_of_an_app_and_the_result(name, given, inputs, results):
    run = recorded_run(fake_programs.fake(name), name, given)
    assert set(run["inputs"]) == inputs and set(run["result"]) == results and run["calls"]
    assert not any(isinstance(v, str) and "/" in v for v in run["inputs"].values()), "no path of this machine"


def test_clicks_and_boxes_are_numbers_and_the_mask_is_the_one_written():
    run = recorded_run(fake_programs.fake("segmentation"), "segmentation", RUNS["segmentation"][1])
    assert run["inputs"]["points"] == [[60.0, 60.0, 0]] and run["inputs"]["boxes"] == [
        [40.0, 30.0, 200.0, 220.0]
    ]
    decode = run["calls"][1]
    assert decode["method"] == "decode_masks" and decode["inputs"][4].values.tolist() == [[2, 3, 0]]
    mask = run["result"]["mask"]
    assert (
        mask.facts == {"kind": "mask", "width": 320, "height": 240}
        and mask.values.shape == (240, 320)
        and set(np.unique(mask.values)) == {0, 1}
    )


def test_what_is_given_is_what_is_run_on(tmp_path):
    Image.new("RGB", (9, 7), (1, 2, 3)).save(tmp_path / "p.png")
    run = recorded_run(fake_programs.fake("pose"), "pose", {"image": str(tmp_path / "p.png"), "limit": 2})
    image = run["inputs"]["image"]
    assert image.facts == {"kind": "image", "width": 9, "height": 7} and image.values[0, 0].tolist() == [
        1,
        2,
        3,
    ]
    assert len(run["result"]["people"]) == 2 and run["inputs"]["limit"] == 2


def test_packages_have_the_first_pipeline_that_they_know(text_artifact):
    def named(*pipelines):
        return pipeline_name(replace(text_artifact.manifest, pipelines=pipelines))

    assert named("pose") == "pose" and named("other", "video", "pose") == "video"
    assert named() is None and named("other") is None
    assert pipeline_name(replace(text_artifact.manifest, pipelines=None)) is None, "an earlier version's"


def test_every_pipeline_that_packages_know_is_there():
    assert set(RUNS) <= set(NAMES)
    assert all(set(model(name).pipelines) <= set(NAMES) for name in ("sam2", "mvit", "whisper", "blip"))
