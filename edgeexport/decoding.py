"""What text decoders share: attention with a key-value cache, the methods prefill and decode_step, and what they are compared with.

Written in plain PyTorch, so that every target can take it. Shapes: B batch (1 with a cache), H heads, N new tokens, S positions of
the cache, T positions of what the text is about (sound, image), D width of a head.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import nn

from edgeexport.inputs import Choice, OutputOf, SizeOf, Tokens
from edgeexport.method import Dim, Input, Method, Output, Setup


class KeyValueCache(nn.Module):
    """Keys and values of the positions seen so far, as buffers that calls change.

    `update` writes at `positions`; nothing is ever cleared: `seen` masks what is after a token's own position, so a call at
    position 0 starts a new sequence, and one at an earlier position goes back to there.
    """

    def __init__(self, heads: int, positions: int, width: int):
        super().__init__()
        self.keys = nn.Buffer(torch.zeros(1, heads, positions, width))
        self.values = nn.Buffer(torch.zeros(1, heads, positions, width))

    def update(self, positions: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Write keys and values [1,H,N,D] at positions [N] of int64; returns all of them, [1,H,S,D] each."""
        # Not self.keys[:, :, positions] = keys, which drops the leading 1: the runtime's in-place kernel wants equal ranks.
        self.keys.index_copy_(2, positions, keys)
        self.values.index_copy_(2, positions, values)
        return self.keys, self.values


class Positions(nn.Module):
    """Positions of N new tokens from the position of the first, and which cache positions each may see."""

    def __init__(self, count: int):
        super().__init__()
        self.all = nn.Buffer(torch.arange(count), persistent=False)

    def forward(self, position: torch.Tensor, count: int) -> torch.Tensor:
        """[1] of int64 → [N]: position, position + 1, ..."""
        return position + self.all[:count]

    def seen(self, positions: torch.Tensor) -> torch.Tensor:
        """[N] → an additive mask [N,S]: 0 up to a token's own position, minus infinity after it."""
        return torch.where(self.all.unsqueeze(0) <= positions.unsqueeze(1), 0.0, float("-inf"))


def split_heads(x: torch.Tensor, heads: int) -> torch.Tensor:
    """[B,N,H*D] → [B,H,N,D]."""
    return x.unflatten(-1, (heads, -1)).transpose(1, 2)


def attend(query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
    """Attention of scaled queries [B,H,N,D] over keys and values [B,H,S,D], heads joined: [B,N,H*D].

    Written out: a mask of `seen` never hides a whole row, so the guarded softmax of scaled_dot_product_attention is not needed.
    """
    scores = torch.matmul(query, keys.transpose(-1, -2))
    if mask is not None:
        scores = scores + mask
    return torch.matmul(torch.softmax(scores, -1), values).transpose(1, 2).flatten(2)


class OriginalText:
    """What the original decoder says to the whole text so far, without a cache of it; remembers the text, as the program's cache does.

    `decode(tokens [1,N], cache)` gives logits [1,V]; the cache is transformers' own and holds the cross-attention's keys and values.
    """

    def __init__(self, decode: Callable):
        self.decode = decode
        self.text: list[int] = []

    def __call__(self, tokens: torch.Tensor, position: torch.Tensor, *about: torch.Tensor) -> torch.Tensor:
        from transformers.cache_utils import DynamicCache, EncoderDecoderCache

        self.text = self.text[: int(position)] + tokens[0].tolist()
        cache = EncoderDecoderCache(DynamicCache(), DynamicCache())
        half = len(about) // 2
        for layer, (keys, values) in enumerate(zip(about[:half], about[half:])):
            cache.cross_attention_cache.update(keys, values, layer)
            cache.is_updated[layer] = True
        return self.decode(torch.tensor([self.text]), cache)


def cross_outputs(layers: int, about: str) -> tuple[Output, ...]:
    """The outputs of an encoding method: keys of every decoder layer's cross-attention, then values, [B,H,T,D] each."""
    return tuple(
        Output(f"cross_{kind}_{layer}", f"{kind} of decoder layer {layer} for the {about}") for kind in ("keys", "values") for layer in range(layers)
    )


def text_methods(decoder: nn.Module, original: Callable, crossed: Sequence[Output], source: str, shape: tuple[int, ...], vocabulary: int, positions: int) -> tuple[Method, Method]:
    """prefill and decode_step of `decoder`, a module (tokens [1,N], position [1], *crossed of `shape`) → logits [1,V].

    `crossed` are the outputs of the method `source`. Both methods are one module and share its cache: prefill takes a
    prompt from any position on, decode_step one token.
    """
    about = tuple(Input(o.name, shape, meaning=o.meaning, sample=OutputOf(source, o.name)) for o in crossed)
    logits = (Output("logits", "one logit a token of the vocabulary, for what follows the last token given"),)
    token = {"dtype": "int64", "range": (0, vocabulary - 1), "sample": Tokens(0, vocabulary)}
    place = {"dtype": "int64", "unit": "tokens", "range": (0, positions - 1)}
    prompt = Input("tokens", (1, "tokens"), meaning="token ids of the prompt", **token)
    start = Input("position", (1,), meaning="position of the first of them: 0 starts a new text", sample=Choice((0,)), **place)
    last = Input("token", (1, 1), meaning="the token that was chosen last", **token)
    its_place = Input("position", (1,), meaning="its position", sample=SizeOf("position"), **place)
    return (
        Method("prefill", decoder, (prompt, start, *about), logits, (Dim("tokens", 1, positions),), reference=original),
        Method(
            "decode_step", decoder, (last, its_place, *about), logits, (Dim("position", 1, positions - 1),),
            reference=original, setup=Setup("prefill", {"tokens": "position"}),
        ),
    )  # fmt: skip
