"""The pipelines in Kotlin, compiled and run on the JVM: they say what the Python ones say, to the last level of a pixel and the last token."""

import json
import shutil
import wave

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from fake_programs import KEYPOINTS, TEXT, fake, write_record
from phone_tools import PureKotlin
from PIL import Image
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from edgeexport import pose
from edgeexport.mobile.golden import FILE, RUNS, TENSORS

SIZES = [((37, 23), (64, 64)), ((320, 240), (96, 96)), ((101, 77), (13, 200)), ((1, 1), (5, 3)), ((3, 500), (7, 11)), ((64, 48), (64, 20)), ((50, 50), (50, 50)), ((640, 427), (384, 384))]
RESAMPLINGS = {"BILINEAR": Image.Resampling.BILINEAR, "BICUBIC": Image.Resampling.BICUBIC, "BILINEAR_NO_ANTIALIAS": None}


@pytest.fixture(scope="module")
def kotlin():
    running = PureKotlin()
    yield running
    running.close()


def noise(width, height, seed=0):
    """A photo of noise, half of it black or white."""
    generator = np.random.default_rng(seed)
    pixels = generator.integers(0, 256, (height, width, 3), dtype=np.uint8)
    return np.where(generator.random((height, width, 1)) < 0.5, pixels, np.where(pixels > 127, 255, 0)).astype(np.uint8)


def asked_about(pixels, tmp_path):
    """The part of a question that gives an image."""
    (tmp_path / "in.bin").write_bytes(pixels.tobytes())
    return {"file": tmp_path / "in.bin", "width": pixels.shape[1], "height": pixels.shape[0], "out": tmp_path / "out.bin"}


@pytest.mark.parametrize("resampling", RESAMPLINGS)
@pytest.mark.parametrize(("size", "to"), SIZES, ids=str)
def test_images_are_resized_to_the_level_as_pillow_and_torch_do(kotlin, tmp_path, resampling, size, to):
    pixels = noise(*size)
    if RESAMPLINGS[resampling] is None:
        wanted = F.interpolate(torch.from_numpy(pixels).permute(2, 0, 1)[None], to[::-1], mode="bilinear")[0].permute(1, 2, 0).numpy()
    else:
        wanted = np.asarray(Image.fromarray(pixels).resize(to, RESAMPLINGS[resampling]))
    kotlin.ask("resize", **asked_about(pixels, tmp_path), to_width=to[0], to_height=to[1], resampling=resampling)
    said = np.frombuffer((tmp_path / "out.bin").read_bytes(), np.uint8).reshape(wanted.shape)
    assert np.abs(said.astype(int) - wanted).max() == 0


@pytest.mark.parametrize("size", [(333, 517), (1281, 31), (640, 640), (2, 3000), (1, 1), (639, 641)], ids=str)
def test_the_letterbox_is_that_of_the_python_pipeline(kotlin, tmp_path, size):
    pixels = noise(*size)
    wanted = (pose.Fit.of(size, 640).letterbox(Image.fromarray(pixels), 114) * 255).round().byte().permute(1, 2, 0).numpy()
    kotlin.ask("letterbox", **asked_about(pixels, tmp_path), side=640, padding=114)
    assert np.array_equal(np.frombuffer((tmp_path / "out.bin").read_bytes(), np.uint8).reshape(640, 640, 3), wanted)


@pytest.mark.parametrize("to", [(320, 240), (600, 401), (1, 9), (100, 1000)], ids=str)
def test_masks_are_enlarged_as_torch_does(kotlin, tmp_path, to):
    plane = torch.randn(256, 256, generator=torch.Generator().manual_seed(1)) * 10
    (tmp_path / "in.bin").write_bytes(plane.numpy().tobytes())
    kotlin.ask("interpolate", file=tmp_path / "in.bin", width=256, height=256, out=tmp_path / "out.bin", to_width=to[0], to_height=to[1])
    said = torch.from_numpy(np.frombuffer((tmp_path / "out.bin").read_bytes(), np.float32).reshape(to[::-1]).copy())
    wanted = F.interpolate(plane[None, None], to[::-1], mode="bilinear", align_corners=False)[0, 0]
    assert float((said - wanted).abs().max()) < 1e-5 and torch.equal(said > 0, wanted > 0)


@pytest.mark.parametrize(("iou", "limit"), [(0.7, 300), (0.3, 300), (0.0, 300), (1.0, 20)])
def test_suppression_keeps_the_same_boxes(kotlin, tmp_path, iou, limit):
    boxes, scores, *_ = (a[0].numpy() for a in fake("pose", seed=4)["detect"](torch.zeros(1)))
    scores[50:60] = scores[10]  # equal ones stay in their order
    (tmp_path / "boxes.bin").write_bytes(boxes.tobytes())
    (tmp_path / "scores.bin").write_bytes(scores.tobytes())
    said = kotlin.ask("suppress", boxes=tmp_path / "boxes.bin", scores=tmp_path / "scores.bin", iou=iou, limit=limit)
    assert said == pose.suppress(boxes, scores, iou, limit).tolist()


CORPUS = "A photo of a cat. Don't do not; the cat's café, naïve coöperation & 3,141 things (more)! ARABIC مرحبا, 日本語 and Ελλάς. " * 3


def saved(tokenizer, folder):
    tokenizer.save(str(folder / "tokenizer.json"))
    return tokenizer, folder / "tokenizer.json"


def bert(folder, lowercase=True):
    """A WordPiece tokenizer like BLIP's, of another vocabulary."""
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]", max_input_chars_per_word=20))
    tokenizer.normalizer, tokenizer.pre_tokenizer = normalizers.BertNormalizer(lowercase=lowercase), pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    tokenizer.train_from_iterator([CORPUS], trainers.WordPieceTrainer(vocab_size=220, special_tokens=["[PAD]", "[UNK]", "[CLS]", "[SEP]"], show_progress=False))
    return saved(tokenizer, folder)


def byte_level(folder, size=300):
    """A byte-level tokenizer like Whisper's, of another vocabulary."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    tokenizer.train_from_iterator([CORPUS], trainers.BpeTrainer(vocab_size=size, initial_alphabet=alphabet, show_progress=False))
    tokenizer.add_special_tokens(["<|end|>"])
    return saved(tokenizer, folder)


def word_level(folder):
    """One token a word, as the micro BLIP has it."""
    words = dict.fromkeys(["[UNK]", *"a photo of the cat . 3 , naïve".split()])
    tokenizer = Tokenizer(models.WordLevel({w: i for i, w in enumerate(words)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    return saved(tokenizer, folder)


def texts():
    """Prompts, and characters of every kind in a random order."""
    kinds = [*"aZ09 .,'!?-_#@()&\t\n\x00\x07\u200b\u200d\ufffd", "é", "ß", "İ", "Σ", "ς", "日", "㐀", "𠀀", "🙂", "…", "“", "\u00a0", "\u2028", "e\u0301", "क्", "①", "٣", "ﬁ", "[SEP]", "[UNK"]
    generator = np.random.default_rng(5)
    return ["a photo of", "", " ", "Don't do not", CORPUS, "x" * 25, *("".join(generator.choice(kinds, 30)) for _ in range(60))]


@pytest.mark.parametrize("make", [bert, lambda folder: bert(folder, lowercase=False), word_level], ids=["WordPiece", "WordPiece, cased", "WordLevel"])
def test_text_is_read_as_tokenizers_does(kotlin, tmp_path, make):
    tokenizer, file = make(tmp_path)
    said = kotlin.ask("encode", tokenizer=file, texts=texts())
    assert said == [tokenizer.encode(text, add_special_tokens=False).ids for text in texts()]


@pytest.mark.parametrize("make", [bert, byte_level, word_level])
def test_text_is_written_as_tokenizers_does(kotlin, tmp_path, make):
    tokenizer, file = make(tmp_path)
    generator = np.random.default_rng(6)
    ids = [[], *(generator.integers(0, tokenizer.get_vocab_size() + 5, 12).tolist() for _ in range(200))]
    said = kotlin.ask("decode", tokenizer=file, lists=ids)
    assert said == [tokenizer.decode(i, skip_special_tokens=True) for i in ids]


def test_a_tokenizer_that_only_writes_says_so(kotlin, tmp_path):
    assert "only writes" in kotlin.ask("encode", tokenizer=byte_level(tmp_path)[1], texts=["a"])["refused"]


def test_a_tokenizer_of_another_kind_is_refused(kotlin, tmp_path):
    Tokenizer(models.Unigram([("a", 0.0)])).save(str(tmp_path / "tokenizer.json"))
    assert "Unigram" in kotlin.ask("decode", tokenizer=tmp_path / "tokenizer.json", lists=[[0]])["refused"]


@pytest.mark.parametrize("masks", ["auto", "multi", "single"])
def test_segmentation_says_what_python_says(kotlin, tmp_path, masks):
    runs = [(fake("segmentation", seed=seed), {**options, "masks": masks}) for seed in range(3) for options in RUNS["segmentation"]]
    for figures in kotlin.replay(*write_record(tmp_path, "segmentation", runs)):
        assert figures["inputs of calls"] == 0


def test_pose_says_what_python_says(kotlin, tmp_path):
    for index, size in enumerate([(300, 200), (90, 170), (31, 7)]):
        Image.fromarray(noise(*size, seed=index)).save(tmp_path / f"{index}.png")
    runs = [(fake("pose", seed=index), {"image": str(tmp_path / f"{index}.png"), "confidence": "0.4", "iou": "0.5", "limit": 40}) for index in range(3)]
    for figures in kotlin.replay(*write_record(tmp_path, "pose", runs)):
        assert figures["inputs of calls"] == 0


@pytest.mark.parametrize(("clips", "count"), [(1, 20), (3, 20), (5, 10), (3, 5)], ids=str)
def test_videos_are_what_python_says_they_are(kotlin, tmp_path, clips, count):
    (tmp_path / "frames").mkdir()
    for index in range(count):
        Image.fromarray(noise(90, 57, seed=index)).save(tmp_path / "frames" / f"{index:02}.png")
    runs = [(fake("video", seed=clips), {"clips": clips, "video": str(tmp_path / "frames")})]
    (figures,) = kotlin.replay(*write_record(tmp_path, "video", runs))
    assert figures["inputs of calls"] == 0


def test_captions_say_what_python_says(kotlin, tmp_path):
    tokenizer, file = bert(tmp_path)
    runs = [(fake("captions", seed, tokenizer), {**options, "max-tokens": 8}) for seed in range(3) for options in RUNS["captions"]]
    assert len(kotlin.replay(*write_record(tmp_path, "captions", runs), file)) == 6


def test_captions_without_a_tokenizer_are_token_ids(kotlin, tmp_path):
    (figures,) = kotlin.replay(*write_record(tmp_path, "captions", [(fake("captions"), {"max-tokens": 3})]))
    assert figures["caption"] == figures["token ids"] == 0


def write_sound(path):
    """Two seconds of noise with half a window of silence, and a window that is all silence."""
    samples = np.random.default_rng(0).integers(-9000, 9000, 32_000).astype("<i2")
    samples[6_000:24_000] = 0
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(16_000)
        file.writeframes(samples.tobytes())
    return str(path)


ENGLISH = {"multilingual": False, "languages": {}}


@pytest.mark.parametrize(
    ("facts", "options"), [({}, {}), ({}, {"language": "de", "task": "translate"}), (ENGLISH, {}), (ENGLISH, {"language": "en"})],
    ids=["detected", "translated", "English only", "English named"],
)  # fmt: skip
def test_speech_is_what_python_says_it_is(kotlin, tmp_path, facts, options):
    tokenizer, file = byte_level(tmp_path, TEXT["end"])
    sounds = [{}, {"audio": write_sound(tmp_path / "s.wav")}]
    runs = [(fake("speech", seed, tokenizer, **facts), {**options, **sounds[seed % 2]}) for seed in range(12)]
    golden, manifest = write_record(tmp_path, "speech", runs)
    said = [run["result"] for run in json.loads((golden / FILE).read_text())["runs"]]
    assert sum(len(result["segments"]) for result in said) > 20 and any(len(result["segments"]) > 3 for result in said)
    assert all(f["inputs of calls"] == 0 for f in kotlin.replay(golden, manifest, file))


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
        ("segmentation", {"points": [[400, 10, 1]]}, "outside the photo of 320 x 240"), ("segmentation", {"points": []}, "Give at least one"),
        ("segmentation", {"points": [], "boxes": [[9, 9, 9, 20]]}, "is empty"), ("pose", {"confidence": 1.5}, "from 0 to 1"),
        ("pose", {"limit": 0}, "at least 1"), ("video", {"clips": 0}, "at least 1"), ("captions", {"max_tokens": 12}, "1 to 11 here"),
        ("captions", {"prompt": "a cat"}, "needs a tokenizer"), ("speech", {"language": "xx"}, "none of the model's languages: en, de, fr"),
    ],
)  # fmt: skip
def test_what_cannot_be_done_is_refused(kotlin, tmp_path, name, inputs, said):
    golden, manifest = write_record(tmp_path, name, [(fake(name), RUNS[name][0])])
    record = json.loads((golden / FILE).read_text())
    record["runs"][0]["inputs"] |= inputs
    (golden / FILE).write_text(json.dumps(record))
    assert said in kotlin.ask("replay", golden=golden, manifest=manifest)["refused"]
