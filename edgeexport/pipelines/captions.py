"""Image captioning as a pipeline: a photo, and a beginning of the caption if one is wanted, to a
caption.
"""

from __future__ import annotations

from typing import Any

from edgeexport.errors import InputError
from edgeexport.method import Option, Pipeline
from edgeexport.pipelines.media.photos import read_photo, to_tensor

OPTIONS = (
    Option("image", "photo to caption (JPEG, PNG, ...)", "file", required=True, sample="photo"),
    Option("prompt", "beginning of the caption, for example 'a photo of'"),
    Option("max-tokens", "stop after so many tokens", "number", default=20),
)


def run(program, image: str, prompt: str | None = None, max_tokens: int = 20) -> dict[str, Any]:
    """Caption a photo, greedily. Returns the caption and its token ids. Raises InputError."""
    from PIL import Image

    facts, size = program.manifest.prepare, program.manifest.prepare["image_size"]
    tokenizer = program.artifact.tokenizer()
    begin = _prompt_ids(tokenizer, prompt, facts)
    if not 0 < max_tokens <= facts["text_positions"] - len(begin):
        raise InputError(
            f"--max-tokens is 1 to {facts['text_positions'] - len(begin)} here, not {max_tokens}."
        )
    photo = read_photo(image)
    seen = program["encode_image"](
        to_tensor(photo, size, size, facts["mean"], facts["std"], Image.Resampling.BICUBIC)
    )
    tokens = generate(program, begin, max_tokens, seen)
    said = [*begin[1:], *tokens]
    return {
        "image": image,
        "caption": tokenizer.decode(said, skip_special_tokens=True) if tokenizer else None,
        "token_ids": said,
        "note": program.artifact.text_note,
    }


def _prompt_ids(tokenizer, prompt: str | None, facts: dict) -> list[int]:
    if not prompt:
        return [facts["start"]]
    if tokenizer is None:
        raise InputError(
            "--prompt needs a tokenizer, and this artifact has none: put tokenizer.json beside the checkpoint"
            " and build again."
        )
    ids = [facts["start"], *tokenizer.encode(prompt, add_special_tokens=False).ids]
    if len(ids) >= facts["text_positions"]:
        raise InputError(
            f"The prompt has {len(ids)} tokens; prompt and caption together may have"
            f" {facts['text_positions']}."
        )
    return ids


def generate(program, begin: list[int], count: int, seen) -> list[int]:
    """Up to `count` token ids after `begin`, the likeliest at each place; without the one that ends
    the caption.
    """
    import torch

    logits = program["prefill"](torch.tensor([begin]), torch.tensor([0]), *seen)[0]
    tokens: list[int] = []
    while len(tokens) < count:
        token = int(logits.argmax())
        if token == program.manifest.prepare["end"]:
            break
        tokens.append(token)
        if len(tokens) < count:
            place = torch.tensor([len(begin) + len(tokens) - 1])
            logits = program["decode_step"](torch.tensor([[token]]), place, *seen)[0]
    return tokens


PIPELINE = Pipeline(OPTIONS, run, "--image photo.jpg")
