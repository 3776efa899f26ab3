"""A micro BLIP that says which digit is where ("seven left"): transformers' own class, small enough
to be trained in minutes.

The weights in `runtime_tests/micro/blip.safetensors` were made by `scripts/train-micro blip`.
"""

from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from edgeexport.modeling.weights import load_module
from edgeexport.models import blip

SIZE = 16
VOCAB = (
    "[PAD]",
    "[DEC]",
    "[SEP]",
    "left",
    "right",
    "zero",
    "one",
    "two",
    "three",
    "four",
    "five",
    "six",
    "seven",
    "eight",
    "nine",
)
"""Words by token id.

As in BLIP itself a caption starts with the decoder's token and ends with the separator.
"""
PAD, START, END = 0, 1, 2
_SIDES, _DIGITS = VOCAB.index("left"), VOCAB.index("zero")
TRAINED_ON, HELD_OUT = range(1400), range(1400, 1797)
"""Which of scikit-learn's digits were trained on, and which the model never saw."""


def config():
    """BLIP's configuration with 3 and 2 layers of width 64."""
    from edgeexport.modeling.torchvision_operators import ensure_torchvision

    ensure_torchvision()
    from transformers import BlipConfig

    width = {"hidden_size": 64, "intermediate_size": 128, "num_attention_heads": 4, "projection_dim": 64}
    width["initializer_range"] = (
        0.1  # BLIP's own, 1e-10 for images, is for 86 M pretrained parameters: from it nothing is learnt here
    )
    text = width | {
        "vocab_size": len(VOCAB),
        "encoder_hidden_size": 64,
        "num_hidden_layers": 2,
        "max_position_embeddings": 16,
        "bos_token_id": START,
        "eos_token_id": END,
        "sep_token_id": END,
        "pad_token_id": PAD,
        "hidden_dropout_prob": 0.0,
        "attention_probs_dropout_prob": 0.0,
    }
    vision = width | {"num_hidden_layers": 3, "image_size": SIZE, "patch_size": 4}
    return BlipConfig(text_config=text, vision_config=vision, projection_dim=64, image_text_hidden_size=64)


def build():
    """The module, with weights of torch's current seed."""
    settings = config()
    from transformers import BlipForConditionalGeneration

    return BlipForConditionalGeneration(settings)


def batch(indices, n: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """`n` images of one digit out of `indices`, left or right: float32 [n,3,S,S] in -1..1, and
    their captions' token ids [n,4].
    """
    from sklearn.datasets import load_digits

    random = np.random.default_rng(seed)
    digits = load_digits()
    chosen = random.choice(np.asarray(indices), n)
    side = random.integers(2, size=n)
    rows = random.integers(3, 6, size=n)
    images = random.normal(0.0, 0.03, size=(n, SIZE, SIZE))
    for image, index, row, column in zip(images, chosen, rows, 8 * side):
        image[row : row + 8, column : column + 8] += digits.images[index] / 16.0
    pixels = torch.from_numpy(images).float()[:, None].expand(-1, 3, -1, -1) * 2.0 - 1.0
    captions = np.stack(
        [np.full(n, START), _DIGITS + digits.target[chosen], _SIDES + side, np.full(n, END)], axis=1
    )
    return pixels.contiguous(), torch.from_numpy(captions)


def decode(tokens) -> str:
    """Token ids to text, without the start and what follows the end: "seven left"."""
    words = []
    for token in tokens:
        if token == END:
            break
        if token not in (START, PAD):
            words.append(VOCAB[int(token)])
    return " ".join(words)


def tokenizer() -> bytes:
    """VOCAB as a tokenizer.json: a word is a token."""
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import Whitespace

    words = Tokenizer(WordLevel({word: index for index, word in enumerate(VOCAB)}, unk_token="[PAD]"))
    words.pre_tokenizer = Whitespace()
    return words.to_str().encode()


def unreleased():
    raise OSError("it was never released")


def held_out_captions(program, count: int, seed: int) -> tuple[list[str], list[str], list[str]]:
    """Captions of digits never seen: what eager says, what a program says, what they are."""
    from safetensors.torch import load_model

    from edgeexport.pipelines.captions import generate

    module = build().eval()
    load_model(module, Path(__file__).parent / "micro" / "blip.safetensors")
    pixels, captions = batch(HELD_OUT, count, seed=seed)
    with torch.no_grad():
        tokens = module.generate(pixel_values=pixels, max_new_tokens=4, num_beams=1, do_sample=False)
    seen = (program["encode_image"](image[None]) for image in pixels)
    said = [generate(program, [START], 4, about) for about in seen]
    eager, answers, wanted = (
        [decode(row) for row in rows] for rows in (tokens.tolist(), said, captions.tolist())
    )
    return eager, answers, wanted


MODEL = replace(
    blip.model("blip-captioning-base"),
    name="micro-blip",
    summary="micro BLIP: which digit is on which side",
    load=lambda weights: load_module(weights, build, unreleased, "micro BLIP", blip.with_head),
    assets=lambda weights: {"tokenizer.json": tokenizer()},
    prepare={
        "image_size": SIZE,
        "mean": [0.5] * 3,
        "std": [0.5] * 3,
        "tokenizer": "tokenizer.json",
        "text_positions": 16,
        "start": START,
        "end": END,
    },
)
