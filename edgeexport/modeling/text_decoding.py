"""What text decoders share: attention with a key-value cache, the methods prefill and decode_step,
and what they are compared with.

Written in plain PyTorch, so that every target can take it. Shapes: B batch (1 with a cache), H
heads, N new tokens, S positions of the cache, T positions of what the text is about (sound, image),
D width of a head. Keys are [B*H,T,D] and values [B*H,D,T], so that both products of one query are
matrix times vector, and read the matrix as it lies (passes/vector_bmm_as_left). With a dimension
for the batch alone, XNNPACK copied all of them at every step (2 of 12 ms in Whisper tiny).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import nn

from edgeexport.method import INT8, Dim, Input, Method, Output, Rule, Setup
from edgeexport.samplers import Choice, OutputOf, SizeOf, Tokens

TEXT_INT8 = (
    *INT8,
    *(Rule("weight_int8", methods=method, operators="linear") for method in ("prefill", "decode_step")),
)
"""A step reads every weight once, and waits for memory: with activations in float32 it takes as
long as with int8, and says nearly what float32 says (Whisper tiny.en: 27 instead of 25 dB).
"""


class KeyValueCache(nn.Module):
    """Keys and values of the positions seen so far, as buffers that calls change.

    `update` writes at `positions`; nothing is ever cleared: `seen` masks what is after a token's
    own position, so a call at position 0 starts a new sequence, and one at an earlier position goes
    back to there.
    """

    def __init__(self, heads: int, positions: int, width: int):
        super().__init__()
        self.keys = nn.Buffer(torch.zeros(heads, positions, width))
        self.values = nn.Buffer(torch.zeros(heads, width, positions))

    def update(
        self, positions: torch.Tensor, keys: torch.Tensor, values: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Write keys and values [H,N,D] at positions [N] of int64; returns all of them, [H,S,D] and
        [H,D,S].
        """
        self.keys.index_copy_(1, positions, keys)
        self.values.index_copy_(2, positions, values.transpose(1, 2))
        return self.keys, self.values


class Positions(nn.Module):
    """Positions of N new tokens from the position of the first, and which cache positions each may
    see.
    """

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
    """[B,N,H*D] → [B*H,N,D]."""
    return x.unflatten(-1, (heads, -1)).transpose(1, 2).flatten(0, 1)


def attend(
    query: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    heads: int,
    mask: torch.Tensor | None = None,
) -> torch.Tensor:
    """Attention of scaled queries [B*H,N,D] over keys [B*H,S,D] and values [B*H,D,S], heads joined:
    [B,N,H*D].

    Written out: a mask of `seen` never hides a whole row, so the guarded softmax of
    scaled_dot_product_attention is not needed.
    """
    scores = torch.bmm(query, keys.transpose(1, 2))
    if mask is not None:
        scores = scores + mask
    return (
        torch.bmm(torch.softmax(scores, -1), values.transpose(1, 2))
        .unflatten(0, (-1, heads))
        .transpose(1, 2)
        .flatten(2)
    )


class OriginalText:
    """What the original decoder says to the whole text so far, without a cache of it; remembers the
    text, as the program's cache does.

    `decode(tokens [1,N], cache)` gives logits [1,V]; the cache is transformers' own and holds the
    cross-attention's keys and values.
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
            cache.cross_attention_cache.update(keys.unsqueeze(0), values.transpose(1, 2).unsqueeze(0), layer)
            cache.is_updated[layer] = True
        return self.decode(torch.tensor([self.text]), cache)


def crossed(
    hidden: torch.Tensor, keys: Sequence[nn.Module], values: Sequence[nn.Module], heads: int
) -> tuple[torch.Tensor, ...]:
    """Hidden states [B,T,C] → keys of every decoder layer's cross-attention [B*H,T,D], then values
    [B*H,D,T].

    They depend on the sound or image alone; decoders that take hidden states compute them again at
    each token.
    """
    made_keys = [split_heads(key(hidden), heads).contiguous() for key in keys]
    return (*made_keys, *(split_heads(value(hidden), heads).transpose(1, 2).contiguous() for value in values))


def cross_outputs(layers: int, about: str) -> tuple[Output, ...]:
    """What `crossed` returns."""
    keys = (
        Output(f"cross_keys_{layer}", f"keys of decoder layer {layer} for the {about}, heads first")
        for layer in range(layers)
    )
    return (
        *keys,
        *(
            Output(
                f"cross_values_{layer}",
                f"values of decoder layer {layer} for the {about}, transposed, heads first",
            )
            for layer in range(layers)
        ),
    )


def cross_inputs(layers: int, source: str, heads: int, length: int, width: int) -> tuple[Input, ...]:
    """What `cross_outputs` of the method `source` are as inputs of the decoder, for one sound or
    image of `length` positions.
    """
    shapes = [(heads, length, width)] * layers + [(heads, width, length)] * layers
    outputs = cross_outputs(layers, "one that is written about")
    return tuple(
        Input(o.name, shape, meaning=o.meaning, sample=OutputOf(source, o.name))
        for o, shape in zip(outputs, shapes)
    )


def text_methods(
    decoder: nn.Module, original: Callable, about: tuple[Input, ...], vocabulary: int, positions: int
) -> tuple[Method, Method]:
    """prefill and decode_step of `decoder`, a module (tokens [1,N], position [1], *about of
    `cross_inputs`) → logits [1,V].

    Both methods are one module and share its cache: prefill takes a prompt from any position on,
    decode_step one token.
    """
    logits = (Output("logits", "one logit a token of the vocabulary, for what follows the last token given"),)
    token = {"dtype": "int64", "range": (0, vocabulary - 1), "sample": Tokens(0, vocabulary)}
    place = {"dtype": "int64", "unit": "tokens", "range": (0, positions - 1)}
    prompt = Input("tokens", (1, "tokens"), meaning="token ids of the prompt", **token)
    start = Input(
        "position",
        (1,),
        meaning="position of the first of them: 0 starts a new text",
        first_of="tokens",
        sample=Choice((0,)),
        **place,
    )
    last = Input("token", (1, 1), meaning="the token that was chosen last", **token)
    its_place = Input("position", (1,), meaning="its position", sample=SizeOf("position"), **place)
    return (
        Method(
            "prefill",
            decoder,
            (prompt, start, *about),
            logits,
            (Dim("tokens", 1, positions),),
            reference=original,
        ),
        Method(
            "decode_step",
            decoder,
            (last, its_place, *about),
            logits,
            (Dim("position", 1, positions - 1),),
            reference=original,
            setup=Setup("prefill", {"tokens": "position"}),
        ),
    )
