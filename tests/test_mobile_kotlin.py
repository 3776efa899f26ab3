"""The pipelines in Kotlin, compiled and run on the JVM: they say what the Python ones say, to the
last level of a pixel and the last token.
"""

import json
import shutil

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from fake_programs import KEYPOINTS, fake, write_record
from phone_tools import PureKotlin
from PIL import Image
from pipeline_runs import (
    CLIPS,
    SIZES,
    SPEECH,
    bert,
    byte_level,
    caption_runs,
    many_segments,
    noise,
    pose_runs,
    resized,
    segmentation_runs,
    speech_runs,
    texts,
    video_runs,
    word_level,
)
from tokenizers import Tokenizer, models

from edgeexport.pipelines import pose
from edgeexport.ship.mobile.golden import FILE, RUNS, TENSORS

pytestmark = pytest.mark.toolchain

RESAMPLINGS = {
    "BILINEAR": Image.Resampling.BILINEAR,
    "BICUBIC": Image.Resampling.BICUBIC,
    "BILINEAR_NO_ANTIALIAS": None,
}


@pytest.fixture(scope="module")
def kotlin():
    running = PureKotlin()
    yield running
    running.close()


def asked_about(pixels, tmp_path):
    """The part of a question that gives an image."""
    (tmp_path / "in.bin").write_bytes(pixels.tobytes())
    return {
        "file": tmp_path / "in.bin",
        "width": pixels.shape[1],
        "height": pixels.shape[0],
        "out": tmp_path / "out.bin",
    }


@pytest.mark.parametrize("resampling", RESAMPLINGS)
@pytest.mark.parametrize(("size", "to"), SIZES, ids=str)
def test_images_are_resized_to_the_level_as_pillow_and_torch_do(kotlin, tmp_path, resampling, size, to):
    pixels = noise(*size)
    wanted = resized(pixels, to, RESAMPLINGS[resampling])
    kotlin.ask(
        "resize", **asked_about(pixels, tmp_path), to_width=to[0], to_height=to[1], resampling=resampling
    )
    said = np.frombuffer((tmp_path / "out.bin").read_bytes(), np.uint8).reshape(wanted.shape)
    assert np.abs(said.astype(int) - wanted).max() == 0


@pytest.mark.parametrize("size", [(333, 517), (1281, 31), (640, 640), (2, 3000), (1, 1), (639, 641)], ids=str)
def test_the_letterbox_is_that_of_the_python_pipeline(kotlin, tmp_path, size):
    pixels = noise(*size)
    wanted = (
        (pose.Fit.of(size, 640).letterbox(Image.fromarray(pixels), 114) * 255)
        .round()
        .byte()
        .permute(1, 2, 0)
        .numpy()
    )
    kotlin.ask("letterbox", **asked_about(pixels, tmp_path), side=640, padding=114)
    assert np.array_equal(
        np.frombuffer((tmp_path / "out.bin").read_bytes(), np.uint8).reshape(640, 640, 3), wanted
    )


@pytest.mark.parametrize("to", [(320, 240), (600, 401), (1, 9), (100, 1000)], ids=str)
def test_masks_are_enlarged_as_torch_does(kotlin, tmp_path, to):
    plane = torch.randn(256, 256, generator=torch.Generator().manual_seed(1)) * 10
    (tmp_path / "in.bin").write_bytes(plane.numpy().tobytes())
    kotlin.ask(
        "interpolate",
        file=tmp_path / "in.bin",
        width=256,
        height=256,
        out=tmp_path / "out.bin",
        to_width=to[0],
        to_height=to[1],
    )
    said = torch.from_numpy(
        np.frombuffer((tmp_path / "out.bin").read_bytes(), np.float32).reshape(to[::-1]).copy()
    )
    wanted = F.interpolate(plane[None, None], to[::-1], mode="bilinear", align_corners=False)[0, 0]
    assert float((said - wanted).abs().max()) < 1e-5 and torch.equal(said > 0, wanted > 0)


@pytest.mark.parametrize(("iou", "limit"), [(0.7, 300), (0.3, 300), (0.0, 300), (1.0, 20)])
def test_suppression_keeps_the_same_boxes(kotlin, tmp_path, iou, limit):
    boxes, scores, *_ = (a[0].numpy() for a in fake("pose", seed=4)["detect"](torch.zeros(1)))
    scores[50:60] = scores[10]  # equal ones stay in their order
    (tmp_path / "boxes.bin").write_bytes(boxes.tobytes())
    (tmp_path / "scores.bin").write_bytes(scores.tobytes())
    said = kotlin.ask(
        "suppress", boxes=tmp_path / "boxes.bin", scores=tmp_path / "scores.bin", iou=iou, limit=limit
    )
    assert said == pose.suppress(boxes, scores, iou, limit).tolist()


def saved(tokenizer, folder):
    tokenizer.save(str(folder / "tokenizer.json"))
    return folder / "tokenizer.json"


@pytest.mark.parametrize(
    "make",
    [bert, lambda: bert(lowercase=False), word_level],
    ids=["WordPiece", "WordPiece, cased", "WordLevel"],
)
def test_text_is_read_as_tokenizers_does(kotlin, tmp_path, make):
    tokenizer = make()
    said = kotlin.ask("encode", tokenizer=saved(tokenizer, tmp_path), texts=texts())
    assert said == [tokenizer.encode(text, add_special_tokens=False).ids for text in texts()]


@pytest.mark.parametrize("make", [bert, byte_level, word_level])
def test_text_is_written_as_tokenizers_does(kotlin, tmp_path, make):
    tokenizer = make()
    generator = np.random.default_rng(6)
    ids = [[], *(generator.integers(0, tokenizer.get_vocab_size() + 5, 12).tolist() for _ in range(200))]
    said = kotlin.ask("decode", tokenizer=saved(tokenizer, tmp_path), lists=ids)
    assert said == [tokenizer.decode(i, skip_special_tokens=True) for i in ids]


def test_a_tokenizer_that_only_writes_says_so(kotlin, tmp_path):
    assert (
        "only writes" in kotlin.ask("encode", tokenizer=saved(byte_level(), tmp_path), texts=["a"])["refused"]
    )


def test_a_tokenizer_of_another_kind_is_refused(kotlin, tmp_path):
    Tokenizer(models.Unigram([("a", 0.0)])).save(str(tmp_path / "tokenizer.json"))
    assert "Unigram" in kotlin.ask("decode", tokenizer=tmp_path / "tokenizer.json", lists=[[0]])["refused"]


@pytest.mark.parametrize("masks", ["auto", "multi", "single"])
def test_segmentation_says_what_python_says(kotlin, tmp_path, masks):
    for figures in kotlin.replay(*write_record(tmp_path, "segmentation", segmentation_runs(masks))):
        assert figures["inputs of calls"] == 0


def test_pose_says_what_python_says(kotlin, tmp_path):
    for figures in kotlin.replay(*write_record(tmp_path, "pose", pose_runs(tmp_path))):
        assert figures["inputs of calls"] == 0


@pytest.mark.parametrize(("clips", "count"), CLIPS, ids=str)
def test_videos_are_what_python_says_they_are(kotlin, tmp_path, clips, count):
    (figures,) = kotlin.replay(*write_record(tmp_path, "video", video_runs(tmp_path, clips, count)))
    assert figures["inputs of calls"] == 0


def test_captions_say_what_python_says(kotlin, tmp_path):
    tokenizer = bert()
    assert (
        len(
            kotlin.replay(
                *write_record(tmp_path, "captions", caption_runs(tokenizer)), saved(tokenizer, tmp_path)
            )
        )
        == 6
    )


def test_captions_without_a_tokenizer_are_token_ids(kotlin, tmp_path):
    (figures,) = kotlin.replay(*write_record(tmp_path, "captions", [(fake("captions"), {"max-tokens": 3})]))
    assert figures["caption"] == figures["token ids"] == 0


@pytest.mark.parametrize("name", SPEECH)
def test_speech_is_what_python_says_it_is(kotlin, tmp_path, name):
    tokenizer, runs = speech_runs(tmp_path, name)
    golden, manifest = write_record(tmp_path, "speech", runs)
    assert many_segments([run["result"] for run in json.loads((golden / FILE).read_text())["runs"]])
    assert all(f["inputs of calls"] == 0 for f in kotlin.replay(golden, manifest, saved(tokenizer, tmp_path)))


def test_another_input_or_result_is_noticed(kotlin, tmp_path):
    golden, manifest = write_record(tmp_path, "pose", [(fake("pose"), {})])
    record = json.loads((golden / FILE).read_text())
    (run,) = record["runs"]

    def replayed(change, name):
        changed = shutil.copytree(golden, tmp_path / name)
        change(changed)
        return kotlin.ask("replay", golden=changed, manifest=manifest)["failed"]

    def other_pixel(folder):
        file = folder / TENSORS / run["inputs"]["image"]["file"]
        file.write_bytes(bytes([file.read_bytes()[0] ^ 0x40]) + file.read_bytes()[1:])

    def other(place, value):
        def change(folder):
            place()[0] = value
            (folder / FILE).write_text(json.dumps(record))

        return change

    assert "'input 0' of 'detect' is not the recorded one: off by" in replayed(other_pixel, "pixel")
    best = run["result"]["people"][0]
    assert "boxes in pixels" in replayed(other(lambda: best["box"], best["box"][0] + 0.01), "box")
    assert "keypoints in pixels" in replayed(other(lambda: best["keypoints"][KEYPOINTS[0]], -5.0), "keypoint")


@pytest.mark.parametrize(
    ("name", "inputs", "said"),
    [
        ("segmentation", {"points": [[400, 10, 1]]}, "outside the photo of 320 x 240"),
        ("segmentation", {"points": []}, "Give at least one"),
        ("segmentation", {"points": [], "boxes": [[9, 9, 9, 20]]}, "is empty"),
        ("pose", {"confidence": 1.5}, "from 0 to 1"),
        ("pose", {"limit": 0}, "at least 1"),
        ("video", {"clips": 0}, "at least 1"),
        ("captions", {"max_tokens": 12}, "1 to 11 here"),
        ("captions", {"prompt": "a cat"}, "needs a tokenizer"),
        ("speech", {"language": "xx"}, "none of the model's languages: en, de, fr"),
    ],
)
def test_what_cannot_be_done_is_refused(kotlin, tmp_path, name, inputs, said):
    golden, manifest = write_record(tmp_path, name, [(fake(name), RUNS[name][0])])
    record = json.loads((golden / FILE).read_text())
    record["runs"][0]["inputs"] |= inputs
    (golden / FILE).write_text(json.dumps(record))
    assert said in kotlin.ask("replay", golden=golden, manifest=manifest)["refused"]
