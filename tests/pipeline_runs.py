"""What the pipelines in Kotlin and in Swift are both tried on: photos, texts, tokenizers, and runs
of every pipeline on programs that answer at random.
"""

import wave

import numpy as np
import torch
import torch.nn.functional as F
from fake_programs import TEXT, fake
from PIL import Image
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from edgeexport.ship.mobile.golden import RUNS

SIZES = [
    ((37, 23), (64, 64)),
    ((320, 240), (96, 96)),
    ((101, 77), (13, 200)),
    ((1, 1), (5, 3)),
    ((3, 500), (7, 11)),
    ((64, 48), (64, 20)),
    ((50, 50), (50, 50)),
    ((640, 427), (384, 384)),
]
"""(width, height) of a photo, and what it is resized to."""


def noise(width, height, seed=0):
    """A photo of noise, half of it black or white."""
    generator = np.random.default_rng(seed)
    pixels = generator.integers(0, 256, (height, width, 3), dtype=np.uint8)
    return np.where(
        generator.random((height, width, 1)) < 0.5, pixels, np.where(pixels > 127, 255, 0)
    ).astype(np.uint8)


def resized(pixels, to, resampling):
    """As Pillow does it, or for None as torch does without antialiasing."""
    if resampling is None:
        return (
            F.interpolate(torch.from_numpy(pixels).permute(2, 0, 1)[None], to[::-1], mode="bilinear")[0]
            .permute(1, 2, 0)
            .numpy()
        )
    return np.asarray(Image.fromarray(pixels).resize(to, resampling))


CORPUS = (
    "A photo of a cat. Don't do not; the cat's café, naïve coöperation & 3,141 things (more)! ARABIC مرحبا,"
    " 日本語 and Ελλάς. " * 3
)


def bert(lowercase=True):
    """A WordPiece tokenizer like BLIP's, of another vocabulary."""
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]", max_input_chars_per_word=20))
    tokenizer.normalizer, tokenizer.pre_tokenizer = (
        normalizers.BertNormalizer(lowercase=lowercase),
        pre_tokenizers.BertPreTokenizer(),
    )
    tokenizer.decoder = decoders.WordPiece()
    tokenizer.train_from_iterator(
        [CORPUS],
        trainers.WordPieceTrainer(
            vocab_size=220, special_tokens=["[PAD]", "[UNK]", "[CLS]", "[SEP]"], show_progress=False
        ),
    )
    return tokenizer


def byte_level(size=300):
    """A byte-level tokenizer like Whisper's, of another vocabulary."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer, tokenizer.decoder = (
        pre_tokenizers.ByteLevel(add_prefix_space=False),
        decoders.ByteLevel(),
    )
    tokenizer.train_from_iterator(
        [CORPUS],
        trainers.BpeTrainer(
            vocab_size=size, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False
        ),
    )
    tokenizer.add_special_tokens(["<|end|>"])
    return tokenizer


def word_level():
    """One token a word, as the micro BLIP has it; two of them are equal for Swift's strings."""
    words = dict.fromkeys(["[UNK]", *"a photo of the cat . 3 , naïve e\u0301t\u00e9 \u00e9te\u0301".split()])
    tokenizer = Tokenizer(models.WordLevel({w: i for i, w in enumerate(words)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    return tokenizer


def texts():
    """Prompts, and characters of every kind in a random order."""
    kinds = [
        *"aZ09 .,'!?-_#@()&\t\n\x00\x07\u200b\u200d\ufffd",
        "é",
        "ß",
        "İ",
        "Σ",
        "ς",
        "日",
        "㐀",
        "𠀀",
        "🙂",
        "…",
        "“",
        "\u00a0",
        "\u2028",
        "e\u0301",
        "क्",
        "①",
        "٣",
        "ﬁ",
        "[SEP]",
        "[UNK",
    ]
    generator = np.random.default_rng(5)
    return [
        "a photo of",
        "",
        " ",
        "Don't do not",
        "e\u0301t\u00e9 \u00e9te\u0301",
        CORPUS,
        "x" * 25,
        *("".join(generator.choice(kinds, 30)) for _ in range(60)),
    ]


def segmentation_runs(masks):
    return [
        (fake("segmentation", seed=seed), {**options, "masks": masks})
        for seed in range(2)
        for options in RUNS["segmentation"]
    ]


def pose_runs(folder):
    for index, size in enumerate([(300, 200), (90, 170), (31, 7)]):
        Image.fromarray(noise(*size, seed=index)).save(folder / f"{index}.png")
    options = {"confidence": "0.4", "iou": "0.5", "limit": 40}
    return [
        (fake("pose", seed=index), {"image": str(folder / f"{index}.png"), **options}) for index in range(3)
    ]


CLIPS = [(1, 20), (3, 20), (5, 10), (3, 5)]
"""Clips, and the frames that there are."""


def video_runs(folder, clips, count):
    (folder / "frames").mkdir()
    for index in range(count):
        Image.fromarray(noise(90, 57, seed=index)).save(folder / "frames" / f"{index:02}.png")
    return [(fake("video", seed=clips), {"clips": clips, "video": str(folder / "frames")})]


def caption_runs(tokenizer):
    return [
        (fake("captions", seed, tokenizer), {**options, "max-tokens": 8})
        for seed in range(3)
        for options in RUNS["captions"]
    ]


_ENGLISH = {"multilingual": False, "languages": {}}
SPEECH = {
    "detected": ({}, {}),
    "translated": ({}, {"language": "de", "task": "translate"}),
    "English only": (_ENGLISH, {}),
    "English named": (_ENGLISH, {"language": "en"}),
}
"""What is other in the manifest, and the options."""


def speech_runs(folder, name):
    """(tokenizer, runs), every other one of a sound with silence in it."""
    facts, options = SPEECH[name]
    tokenizer = byte_level(TEXT["end"])
    sounds = [{}, {"audio": write_sound(folder / "s.wav")}]
    return tokenizer, [
        (fake("speech", seed, tokenizer, **facts), {**options, **sounds[seed % 2]}) for seed in range(12)
    ]


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


def many_segments(results):
    """Whether results of speech are worth comparing."""
    return sum(len(result["segments"]) for result in results) > 20 and any(
        len(result["segments"]) > 3 for result in results
    )
