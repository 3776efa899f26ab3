"""A user's own model that writes text: one decoder layer with a cache, about a vector."""

import torch
import torch.nn.functional as F
from torch import nn

from edgeexport.method import Dim, Input, Method, Model, Source, Tolerance
from edgeexport.modeling.text_decoding import (
    KeyValueCache,
    Positions,
    attend,
    cross_inputs,
    cross_outputs,
    crossed,
    split_heads,
    text_methods,
)
from edgeexport.modeling.weights import load_module
from edgeexport.samplers import Normal

VOCABULARY, WIDTH, HEADS, POSITIONS, LENGTH = 4000, 32, 2, 12, 256


class Writer(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(VOCABULARY, WIDTH)
        self.places = nn.Embedding(POSITIONS, WIDTH)
        self.query, self.key, self.value, self.out = (nn.Linear(WIDTH, WIDTH) for _ in range(4))
        self.cross_query, self.cross_key, self.cross_value, self.cross_out = (
            nn.Linear(WIDTH, WIDTH) for _ in range(4)
        )
        self.norm = nn.LayerNorm(WIDTH)


class Encoder(nn.Module):
    def __init__(self, loaded):
        super().__init__()
        self.key, self.value = loaded.cross_key, loaded.cross_value

    def forward(self, x):
        return crossed(torch.tanh(x * 3.0), [self.key], [self.value], HEADS)


class Decoder(nn.Module):
    def __init__(self, loaded):
        super().__init__()
        self.loaded = loaded
        self.cache = KeyValueCache(HEADS, POSITIONS, WIDTH // HEADS)
        self.positions = Positions(POSITIONS)

    def forward(self, tokens, position, *about):
        m, scale = self.loaded, (WIDTH // HEADS) ** -0.5
        positions = self.positions(position, tokens.shape[1])
        x = F.embedding(tokens, m.words.weight) + F.embedding(positions, m.places.weight)
        past = self.cache.update(positions, split_heads(m.key(x), HEADS), split_heads(m.value(x), HEADS))
        x = x + m.out(
            attend(split_heads(m.query(x) * scale, HEADS), *past, HEADS, self.positions.seen(positions))
        )
        x = x + m.cross_out(attend(split_heads(m.cross_query(x) * scale, HEADS), *about, HEADS))
        return F.linear(m.norm(x[:, -1]), m.words.weight)


class Original:
    """The same text at once, with PyTorch's own causal attention and no cache."""

    def __init__(self, loaded):
        self.loaded, self.text = loaded, []

    def __call__(self, tokens, position, keys, values):
        m = self.loaded
        self.text = self.text[: int(position)] + tokens[0].tolist()

        def heads(x):
            return x.unflatten(-1, (HEADS, -1)).transpose(1, 2)

        x = m.words.weight[self.text][None] + m.places.weight[: len(self.text)]
        y = F.scaled_dot_product_attention(
            heads(m.query(x)), heads(m.key(x)), heads(m.value(x)), is_causal=True
        )
        x = x + m.out(y.transpose(1, 2).flatten(2))
        y = F.scaled_dot_product_attention(heads(m.cross_query(x)), keys[None], values.transpose(1, 2)[None])
        x = x + m.cross_out(y.transpose(1, 2).flatten(2))
        return m.norm(x[:, -1]) @ m.words.weight.t()


def offline():
    raise OSError("no network")


def methods(loaded, dims):
    about = cross_inputs(1, "encode", HEADS, LENGTH, WIDTH // HEADS)
    x = Input("x", (1, LENGTH, WIDTH), meaning="what to write about", sample=Normal())
    return (
        Method("encode", Encoder(loaded), (x,), cross_outputs(1, "vector")),
        *text_methods(Decoder(loaded), Original(loaded), about, VOCABULARY, POSITIONS),
    )


MODEL = Model(
    name="toy-text",
    summary="a toy that writes",
    source=Source("tests", "1", "Apache-2.0"),
    load=lambda weights: load_module(weights, Writer, offline, "toy-text"),
    methods=methods,
    dims=(Dim("batch", 1, 1),),
    tolerances={"fp32": Tolerance(1e-5, 90.0, "float32 sums in another order")},
    prepare={"tokenizer": "tokenizer.json", "start": 1, "end": 2, "text_positions": POSITIONS},
)
