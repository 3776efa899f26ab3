"""BLIP image captioning: a photo to cross-attention keys and values, tokens to logits with a
cache.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from edgeexport.method import Dim, Input, Method, Model, Source, Tolerance, Weights
from edgeexport.modeling.text_decoding import (
    TEXT_INT8,
    KeyValueCache,
    OriginalText,
    Positions,
    attend,
    cross_inputs,
    cross_outputs,
    crossed,
    split_heads,
    text_methods,
)
from edgeexport.modeling.weights import load_module, tokenizer_file
from edgeexport.samplers import Photo

VARIANTS = {
    "blip-captioning-base": {
        "summary": "BLIP base, image captioning, 247 M parameters",
        "aliases": ("blip",),
    },
    "blip-captioning-large": {"summary": "BLIP large, image captioning, 470 M parameters"},
}

TEXT_POSITIONS = 128
"""Prompt and caption together; the model could go to 512, and would read all of the cache at every
step. A caption has 20.
"""

_MEAN, _STD = (0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)  # of CLIP

_VISION = {
    "base": {},
    "large": {
        "hidden_size": 1024,
        "intermediate_size": 4096,
        "num_hidden_layers": 24,
        "num_attention_heads": 16,
    },
}


def model(name: str) -> Model:
    """The variant `name` of VARIANTS."""
    return Model(
        name=name,
        summary=VARIANTS[name]["summary"],
        source=Source(_repository(name), "main", "BSD-3-Clause", "https://arxiv.org/abs/2201.12086"),
        load=lambda weights: load(name, weights),
        methods=methods,
        dims=(Dim("batch", 1, 1),),
        tolerances={
            "fp32": Tolerance(
                1e-4, 80.0, "float32 sums in another order over 12 to 24 layers; 2e-6 was measured"
            )
        },
        assets=lambda weights: tokenizer_file(weights, _repository(name)),
        pipelines=("captions",),
        precisions={"int8": TEXT_INT8},
        prepare={
            "image_size": 384,
            "mean": _MEAN,
            "std": _STD,
            "resize": "bicubic, aspect ratio not kept",
            "tokenizer": "tokenizer.json",
            "text_positions": TEXT_POSITIONS,
            "start": 30522,
            "end": 102,
        },
    )


def _repository(name: str) -> str:
    return f"Salesforce/{name.replace('blip', 'blip-image')}"


def config(name: str):
    """The transformers configuration of a variant: the released models have 12 text heads,
    transformers' default has 8.
    """
    from edgeexport.modeling.torchvision_operators import ensure_torchvision

    ensure_torchvision()
    from transformers import BlipConfig

    return BlipConfig(
        text_config={"num_attention_heads": 12}, vision_config=dict(_VISION[name.rpartition("-")[2]])
    )


def load(name: str, weights: Weights) -> tuple[nn.Module, Weights]:
    """The transformers model with the weights asked for. Raises WeightsError."""
    settings = config(name)
    from transformers import BlipForConditionalGeneration

    repository = _repository(name)
    return load_module(
        weights,
        lambda: BlipForConditionalGeneration(settings),
        lambda: BlipForConditionalGeneration.from_pretrained(repository),
        repository,
        with_head,
    )


def with_head(tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """With the tied output head, which checkpoints may leave out, and without the table of
    positions, which older ones carry.
    """
    tied = {
        "text_decoder.cls.predictions.decoder.weight": "text_decoder.bert.embeddings.word_embeddings.weight",
        "text_decoder.cls.predictions.decoder.bias": "text_decoder.cls.predictions.bias",
    }
    given = {k: v for k, v in tensors.items() if not k.endswith("embeddings.position_ids")}
    return {head: tensors[source] for head, source in tied.items() if source in tensors} | given


def methods(loaded: Any, dims: Mapping[str, Dim]) -> tuple[Method, ...]:
    """encode_image, prefill and decode_step; sizes are those of the loaded model's
    configuration.
    """
    text, vision = loaded.config.text_config, loaded.config.vision_config
    image = Input(
        "image",
        ("batch", 3, vision.image_size, vision.image_size),
        meaning=f"RGB, resized to {vision.image_size} x {vision.image_size}, normalised with mean and std",
        unit="standard deviations",
        range=(-2.0, 2.3),
        sample=Photo(_MEAN, _STD),
    )
    heads = text.num_attention_heads
    layers, patches = text.num_hidden_layers, (vision.image_size // vision.patch_size) ** 2
    about = cross_inputs(layers, "encode_image", heads, patches + 1, text.hidden_size // heads)
    decoder = Decoder(loaded)
    return (
        Method("encode_image", Encoder(loaded), (image,), cross_outputs(layers, "image"), (dims["batch"],)),
        *text_methods(
            decoder,
            OriginalText(partial(original_logits, loaded)),
            about,
            text.vocab_size,
            decoder.positions.all.numel(),
        ),
    )


class Encoder(nn.Module):
    """Image [B,3,S,S] → keys [B*H,T,D], then values [B*H,D,T], of the cross-attention of every text
    layer.
    """

    def __init__(self, loaded: Any):
        super().__init__()
        self.vision = loaded.vision_model
        self.cross: Any = nn.ModuleList(
            layer.crossattention.self for layer in loaded.text_decoder.bert.encoder.layer
        )

    def forward(self, image: torch.Tensor) -> tuple[torch.Tensor, ...]:
        hidden = self.vision(image).last_hidden_state
        return crossed(
            hidden,
            [a.key for a in self.cross],
            [a.value for a in self.cross],
            self.cross[0].num_attention_heads,
        )


class Decoder(nn.Module):
    """Tokens [1,N] from a position [1] on, and the image's keys and values → logits [1,V] for what
    follows the last token.
    """

    def __init__(self, loaded: Any):
        super().__init__()
        bert, settings = loaded.text_decoder.bert, loaded.config.text_config
        self.embeddings, self.layers = bert.embeddings, bert.encoder.layer
        self.head = loaded.text_decoder.cls.predictions
        heads, positions = settings.num_attention_heads, min(TEXT_POSITIONS, settings.max_position_embeddings)
        self.caches: Any = nn.ModuleList(
            KeyValueCache(heads, positions, settings.hidden_size // heads) for _ in self.layers
        )
        self.positions = Positions(positions)
        self.scale = (settings.hidden_size // heads) ** -0.5

    def forward(self, tokens: torch.Tensor, position: torch.Tensor, *image: torch.Tensor) -> torch.Tensor:
        positions = self.positions(position, tokens.shape[1])
        seen = self.positions.seen(positions)
        words, places = self.embeddings.word_embeddings.weight, self.embeddings.position_embeddings.weight
        x = self.embeddings.LayerNorm(F.embedding(tokens, words) + F.embedding(positions, places))
        for layer, cache, keys, values in zip(self.layers, self.caches, image, image[len(self.layers) :]):
            attention, heads = layer.attention.self, layer.attention.self.num_attention_heads
            past = cache.update(
                positions, split_heads(attention.key(x), heads), split_heads(attention.value(x), heads)
            )
            x = layer.attention.output(
                attend(split_heads(attention.query(x) * self.scale, heads), *past, heads, seen), x
            )
            query = split_heads(layer.crossattention.self.query(x) * self.scale, heads)
            x = layer.crossattention.output(attend(query, keys, values, heads), x)
            x = layer.feed_forward_chunk(x)
        return F.linear(self.head.transform(x[:, -1]), words, self.head.bias)


def original_logits(loaded: Any, tokens: torch.Tensor, cache) -> torch.Tensor:
    """What transformers' text decoder says after `tokens`; the image is in the cache."""
    nothing = torch.zeros(1, 1, loaded.config.vision_config.hidden_size)
    # A copy: the embedding of the text is added to in place, which without it would be seen
    # outside.
    said = loaded.text_decoder(
        input_ids=tokens.clone(),
        encoder_hidden_states=nothing,
        past_key_values=cache,
        use_cache=True,
        is_decoder=True,
    )
    return said.logits[:, -1]
