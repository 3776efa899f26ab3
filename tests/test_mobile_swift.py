"""The pipelines in Swift, compiled and run on Linux: they say what the Python ones say, to the last
level of a pixel and the last token.
"""

import json

import numpy as np
import pytest
from fake_programs import fake, write_record
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
from swift_tools import PureSwift

from edgeexport.ship.mobile.golden import FILE
from edgeexport.ship.mobile.platforms.ios import tokenizer_by_id

pytestmark = pytest.mark.toolchain

FILTERS = {
    "bilinear": Image.Resampling.BILINEAR,
    "bicubic": Image.Resampling.BICUBIC,
    "without antialiasing": None,
}


@pytest.fixture(scope="module")
def swift(tmp_path_factory):
    return PureSwift(tmp_path_factory.mktemp("swift"))


@pytest.mark.parametrize("name", FILTERS)
def test_images_are_resized_to_the_level_as_pillow_and_torch_do(swift, tmp_path, name):
    for index, (size, _) in enumerate(SIZES):
        (tmp_path / f"{index}.bin").write_bytes(noise(*size).tobytes())
    questions = [
        {"ask": name, "file": f"{i}.bin", "size": size, "to": to, "out": f"{i}.out"}
        for i, (size, to) in enumerate(SIZES)
    ]
    assert swift.ask(tmp_path, *questions) == ["done"] * len(SIZES)
    for index, (size, to) in enumerate(SIZES):
        wanted = resized(noise(*size), to, FILTERS[name])
        said = np.frombuffer((tmp_path / f"{index}.out").read_bytes(), np.uint8).reshape(wanted.shape)
        assert np.abs(said.astype(int) - wanted).max() == 0, (size, to)


def test_what_the_last_call_was_given_is_sent_once(swift, tmp_path):
    """The same keys; a copy of them shares their values; other values, another shape and another
    method do not.
    """
    (said,) = swift.ask(tmp_path, {"ask": "sent"})
    assert said == [[1, 2], [3, 2], [4, 2], [5, 6], [7, 8], [9, 10], [11], [12, 13]]


def saved(tokenizer, folder):
    """The tokenizer, and the file of it as packages have it."""
    (folder / "tokenizer.json").write_text(tokenizer_by_id(tokenizer.to_str()), encoding="utf-8")
    return tokenizer


@pytest.mark.parametrize(
    "make",
    [bert, lambda: bert(lowercase=False), word_level],
    ids=["WordPiece", "WordPiece, cased", "WordLevel"],
)
def test_text_is_read_as_tokenizers_does(swift, tmp_path, make):
    tokenizer = saved(make(), tmp_path)
    (said,) = swift.ask(tmp_path, {"ask": "encode", "file": "tokenizer.json", "texts": texts()})
    assert said == [tokenizer.encode(text, add_special_tokens=False).ids for text in texts()]


@pytest.mark.parametrize("make", [bert, byte_level, word_level])
def test_text_is_written_as_tokenizers_does(swift, tmp_path, make):
    tokenizer = saved(make(), tmp_path)
    generator = np.random.default_rng(6)
    ids = [[], *(generator.integers(0, tokenizer.get_vocab_size() + 5, 12).tolist() for _ in range(200))]
    (said,) = swift.ask(tmp_path, {"ask": "decode", "file": "tokenizer.json", "lists": ids})
    assert said == [tokenizer.decode(i, skip_special_tokens=True) for i in ids]


def test_tokenizers_that_do_not_fit_are_refused(swift, tmp_path):
    saved(byte_level(), tmp_path)
    (said,) = swift.ask(tmp_path, {"ask": "encode", "file": "tokenizer.json", "texts": ["a"]})
    assert "not text into ids" in said["refused"]
    (tmp_path / "tokenizer.json").write_text('{"model": {"type": "Unigram", "vocab": []}}')
    (said,) = swift.ask(tmp_path, {"ask": "decode", "file": "tokenizer.json", "lists": [[0]]})
    assert "Unigram" in said["refused"]


def replayed(swift, folder, name, runs):
    write_record(folder, name, runs)
    passed, said = swift.replay(folder, name)
    assert passed, said[-3000:]


@pytest.mark.parametrize("masks", ["auto", "multi", "single"])
def test_segmentation_says_what_python_says(swift, tmp_path, masks):
    replayed(swift, tmp_path, "segmentation", segmentation_runs(masks))


def test_pose_says_what_python_says(swift, tmp_path):
    replayed(swift, tmp_path, "pose", pose_runs(tmp_path))


@pytest.mark.parametrize(("clips", "count"), CLIPS, ids=str)
def test_videos_are_what_python_says_they_are(swift, tmp_path, clips, count):
    replayed(swift, tmp_path, "video", video_runs(tmp_path, clips, count))


def test_captions_say_what_python_says(swift, tmp_path):
    replayed(swift, tmp_path, "captions", caption_runs(saved(bert(), tmp_path)))


def test_captions_without_a_tokenizer_are_token_ids(swift, tmp_path):
    replayed(swift, tmp_path, "captions", [(fake("captions"), {"max-tokens": 3})])


@pytest.mark.parametrize("name", SPEECH)
def test_speech_is_what_python_says_it_is(swift, tmp_path, name):
    tokenizer, runs = speech_runs(tmp_path, name)
    saved(tokenizer, tmp_path)
    replayed(swift, tmp_path, "speech", runs)
    assert many_segments(
        [run["result"] for run in json.loads((tmp_path / "golden" / FILE).read_text())["runs"]]
    )


@pytest.mark.parametrize(("place", "value"), [("box", 0.01), ("score", 0.001)])
def test_another_result_is_noticed(swift, tmp_path, place, value):
    golden, manifest = write_record(tmp_path, "pose", [(fake("pose"), {})])
    record = json.loads((golden / FILE).read_text())
    best = record["runs"][0]["result"]["people"][0]
    best[place] = [best[place][0] + value, *best[place][1:]] if place == "box" else best[place] + value
    (golden / FILE).write_text(json.dumps(record))
    passed, said = swift.replay(tmp_path, "pose")
    assert not passed and "is not equal to" in said


def test_another_input_is_noticed(swift, tmp_path):
    golden, manifest = write_record(tmp_path, "pose", [(fake("pose"), {})])
    file = golden / "tensors" / json.loads((golden / FILE).read_text())["runs"][0]["inputs"]["image"]["file"]
    file.write_bytes(bytes([file.read_bytes()[0] ^ 0x40]) + file.read_bytes()[1:])
    passed, said = swift.replay(tmp_path, "pose")
    assert not passed and "call 0, detect, input 0: value" in said
