"""The pipelines in Swift, compiled and run on Linux: they say what the Python ones say, to the last level of a pixel and the last token."""

import json
import wave

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from fake_programs import TEXT, fake, write_record
from PIL import Image
from swift_tools import PureSwift
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from edgeexport.mobile.golden import FILE, RUNS
from edgeexport.mobile.platforms.ios import tokenizer_by_id

SIZES = [((37, 23), (64, 64)), ((320, 240), (96, 96)), ((101, 77), (13, 200)), ((1, 1), (5, 3)), ((3, 500), (7, 11)), ((64, 48), (64, 20)), ((50, 50), (50, 50)), ((640, 427), (384, 384))]
FILTERS = {"bilinear": Image.Resampling.BILINEAR, "bicubic": Image.Resampling.BICUBIC, "without antialiasing": None}


@pytest.fixture(scope="module")
def swift(tmp_path_factory):
    return PureSwift(tmp_path_factory.mktemp("swift"))


def noise(width, height, seed=0):
    """A photo of noise, half of it black or white."""
    generator = np.random.default_rng(seed)
    pixels = generator.integers(0, 256, (height, width, 3), dtype=np.uint8)
    return np.where(generator.random((height, width, 1)) < 0.5, pixels, np.where(pixels > 127, 255, 0)).astype(np.uint8)


def resized(pixels, to, resampling):
    if resampling is None:
        return F.interpolate(torch.from_numpy(pixels).permute(2, 0, 1)[None], to[::-1], mode="bilinear")[0].permute(1, 2, 0).numpy()
    return np.asarray(Image.fromarray(pixels).resize(to, resampling))


@pytest.mark.parametrize("name", FILTERS)
def test_images_are_resized_to_the_level_as_pillow_and_torch_do(swift, tmp_path, name):
    for index, (size, _) in enumerate(SIZES):
        (tmp_path / f"{index}.bin").write_bytes(noise(*size).tobytes())
    questions = [{"ask": name, "file": f"{i}.bin", "size": size, "to": to, "out": f"{i}.out"} for i, (size, to) in enumerate(SIZES)]
    assert swift.ask(tmp_path, *questions) == ["done"] * len(SIZES)
    for index, (size, to) in enumerate(SIZES):
        wanted = resized(noise(*size), to, FILTERS[name])
        said = np.frombuffer((tmp_path / f"{index}.out").read_bytes(), np.uint8).reshape(wanted.shape)
        assert np.abs(said.astype(int) - wanted).max() == 0, (size, to)


CORPUS = "A photo of a cat. Don't do not; the cat's café, naïve coöperation & 3,141 things (more)! ARABIC مرحبا, 日本語 and Ελλάς. " * 3


def saved(tokenizer, folder):
    """The tokenizer, and the file of it as packages have it."""
    (folder / "tokenizer.json").write_text(tokenizer_by_id(tokenizer.to_str()), encoding="utf-8")
    return tokenizer


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
    tokenizer.train_from_iterator([CORPUS], trainers.BpeTrainer(vocab_size=size, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False))
    tokenizer.add_special_tokens(["<|end|>"])
    return saved(tokenizer, folder)


def word_level(folder):
    """One token a word, as the micro BLIP has it; two of them are equal for Swift's strings."""
    words = dict.fromkeys(["[UNK]", *"a photo of the cat . 3 , naïve e\u0301t\u00e9 \u00e9te\u0301".split()])
    tokenizer = Tokenizer(models.WordLevel({w: i for i, w in enumerate(words)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    return saved(tokenizer, folder)


def texts():
    """Prompts, and characters of every kind in a random order."""
    kinds = [*"aZ09 .,'!?-_#@()&\t\n\x00\x07\u200b\u200d\ufffd", "é", "ß", "İ", "Σ", "ς", "日", "㐀", "𠀀", "🙂", "…", "“", "\u00a0", "\u2028", "e\u0301", "क्", "①", "٣", "ﬁ", "[SEP]", "[UNK"]
    generator = np.random.default_rng(5)
    return ["a photo of", "", " ", "Don't do not", "e\u0301t\u00e9 \u00e9te\u0301", CORPUS, "x" * 25, *("".join(generator.choice(kinds, 30)) for _ in range(60))]


@pytest.mark.parametrize("make", [bert, lambda folder: bert(folder, lowercase=False), word_level], ids=["WordPiece", "WordPiece, cased", "WordLevel"])
def test_text_is_read_as_tokenizers_does(swift, tmp_path, make):
    tokenizer = make(tmp_path)
    (said,) = swift.ask(tmp_path, {"ask": "encode", "file": "tokenizer.json", "texts": texts()})
    assert said == [tokenizer.encode(text, add_special_tokens=False).ids for text in texts()]


@pytest.mark.parametrize("make", [bert, byte_level, word_level])
def test_text_is_written_as_tokenizers_does(swift, tmp_path, make):
    tokenizer = make(tmp_path)
    generator = np.random.default_rng(6)
    ids = [[], *(generator.integers(0, tokenizer.get_vocab_size() + 5, 12).tolist() for _ in range(200))]
    (said,) = swift.ask(tmp_path, {"ask": "decode", "file": "tokenizer.json", "lists": ids})
    assert said == [tokenizer.decode(i, skip_special_tokens=True) for i in ids]


def test_tokenizers_that_do_not_fit_are_refused(swift, tmp_path):
    byte_level(tmp_path)
    (said,) = swift.ask(tmp_path, {"ask": "encode", "file": "tokenizer.json", "texts": ["a"]})
    assert "not text into ids" in said["refused"]
    (tmp_path / "tokenizer.json").write_text('{"model": {"type": "Unigram", "vocab": []}}')
    (said,) = swift.ask(tmp_path, {"ask": "decode", "file": "tokenizer.json", "lists": [[0]]})
    assert "Unigram" in said["refused"]


def replayed(swift, folder, name, runs):
    write_record(folder, name, runs)
    complete(folder / "manifest.json")
    passed, said = swift.replay(folder, name)
    assert passed, said[-3000:]


def complete(file):
    """The manifest of a fake program with what a real one has."""
    manifest = json.loads(file.read_text())
    manifest |= {"program": "fake.pte", "methods": [{"inputs": [], "outputs": [], **method} for method in manifest["methods"]]}
    file.write_text(json.dumps(manifest))


@pytest.mark.parametrize("masks", ["auto", "multi", "single"])
def test_segmentation_says_what_python_says(swift, tmp_path, masks):
    replayed(swift, tmp_path, "segmentation", [(fake("segmentation", seed=seed), {**options, "masks": masks}) for seed in range(3) for options in RUNS["segmentation"]])


def test_pose_says_what_python_says(swift, tmp_path):
    for index, size in enumerate([(300, 200), (90, 170), (31, 7)]):
        Image.fromarray(noise(*size, seed=index)).save(tmp_path / f"{index}.png")
    options = {"confidence": "0.4", "iou": "0.5", "limit": 40}
    replayed(swift, tmp_path, "pose", [(fake("pose", seed=index), {"image": str(tmp_path / f"{index}.png"), **options}) for index in range(3)])


@pytest.mark.parametrize(("clips", "count"), [(1, 20), (3, 20), (5, 10), (3, 5)], ids=str)
def test_videos_are_what_python_says_they_are(swift, tmp_path, clips, count):
    (tmp_path / "frames").mkdir()
    for index in range(count):
        Image.fromarray(noise(90, 57, seed=index)).save(tmp_path / "frames" / f"{index:02}.png")
    replayed(swift, tmp_path, "video", [(fake("video", seed=clips), {"clips": clips, "video": str(tmp_path / "frames")})])


def test_captions_say_what_python_says(swift, tmp_path):
    tokenizer = bert(tmp_path)
    replayed(swift, tmp_path, "captions", [(fake("captions", seed, tokenizer), {**options, "max-tokens": 8}) for seed in range(3) for options in RUNS["captions"]])


def test_captions_without_a_tokenizer_are_token_ids(swift, tmp_path):
    replayed(swift, tmp_path, "captions", [(fake("captions"), {"max-tokens": 3})])


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
def test_speech_is_what_python_says_it_is(swift, tmp_path, facts, options):
    tokenizer = byte_level(tmp_path, TEXT["end"])
    sounds = [{}, {"audio": write_sound(tmp_path / "s.wav")}]
    runs = [(fake("speech", seed, tokenizer, **facts), {**options, **sounds[seed % 2]}) for seed in range(12)]
    replayed(swift, tmp_path, "speech", runs)
    said = [run["result"] for run in json.loads((tmp_path / "golden" / FILE).read_text())["runs"]]
    assert sum(len(result["segments"]) for result in said) > 20 and any(len(result["segments"]) > 3 for result in said)


@pytest.mark.parametrize(("place", "value"), [("box", 0.01), ("score", 0.001)])
def test_another_result_is_noticed(swift, tmp_path, place, value):
    golden, manifest = write_record(tmp_path, "pose", [(fake("pose"), {})])
    complete(manifest)
    record = json.loads((golden / FILE).read_text())
    best = record["runs"][0]["result"]["people"][0]
    best[place] = [best[place][0] + value, *best[place][1:]] if place == "box" else best[place] + value
    (golden / FILE).write_text(json.dumps(record))
    passed, said = swift.replay(tmp_path, "pose")
    assert not passed and "is not equal to" in said


def test_another_input_is_noticed(swift, tmp_path):
    golden, manifest = write_record(tmp_path, "pose", [(fake("pose"), {})])
    complete(manifest)
    file = golden / "tensors" / json.loads((golden / FILE).read_text())["runs"][0]["inputs"]["image"]["file"]
    file.write_bytes(bytes([file.read_bytes()[0] ^ 0x40]) + file.read_bytes()[1:])
    passed, said = swift.replay(tmp_path, "pose")
    assert not passed and "call 0, detect, input 0: value" in said
