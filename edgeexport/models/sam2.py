"""SAM 2 (Hiera) for images: encode a photo once, then decode a mask for each set of clicks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from edgeexport.method import Dim, Method, Model, Source, Tolerance, Weights
from edgeexport.modeling.promptable_segmentation import (
    DIMS,
    IMAGE_SIZE,
    PREPARE,
    Neck,
    answer_all_masks,
    declare,
    without,
)
from edgeexport.modeling.weights import load_module

VARIANTS = {
    "sam2-tiny": {
        "summary": "SAM 2.1 Hiera tiny, promptable segmentation, 31 M parameters",
        "aliases": ("sam2",),
    },
    "sam2-small": {"summary": "SAM 2.1 Hiera small, promptable segmentation, 38 M parameters"},
    "sam2-base-plus": {"summary": "SAM 2.1 Hiera base-plus, promptable segmentation, 73 M parameters"},
    "sam2-large": {"summary": "SAM 2.1 Hiera large, promptable segmentation, 216 M parameters"},
}

# Table of variants (SAM 2.1, https://arxiv.org/abs/2408.00714): width, heads, blocks a stage,
# global blocks, window sizes, background size of the position embedding.
_HIERA = {
    "sam2-tiny": (96, 1, (1, 2, 7, 2), (5, 7, 9), (8, 4, 14, 7), 7),
    "sam2-small": (96, 1, (1, 2, 11, 2), (7, 10, 13), (8, 4, 14, 7), 7),
    "sam2-base-plus": (112, 2, (2, 3, 16, 3), (12, 16, 20), (8, 4, 14, 7), 14),
    "sam2-large": (144, 2, (2, 6, 36, 4), (23, 33, 43), (8, 4, 16, 8), 7),
}


def model(name: str) -> Model:
    """The variant `name` of VARIANTS."""
    return Model(
        name=name,
        summary=VARIANTS[name]["summary"],
        source=Source(
            repository=_repository(name),
            revision="main",
            licence="Apache-2.0",
            paper="https://arxiv.org/abs/2408.00714",
        ),
        load=lambda weights: load(name, weights),
        methods=methods,
        dims=DIMS,
        tolerances={
            "fp32": Tolerance(
                1e-4, 80.0, "float32 sums in another order over 12 to 48 blocks; 1e-6 was measured"
            )
        },
        pipelines=("segmentation",),
        prepare=PREPARE,
    )


def _repository(name: str) -> str:
    """Where Meta's released weights of a variant are."""
    return f"facebook/{name.replace('sam2', 'sam2.1-hiera')}"


def config(name: str):
    """The transformers configuration of a variant."""
    from edgeexport.modeling.torchvision_operators import ensure_torchvision

    ensure_torchvision()
    from transformers import Sam2Config, Sam2HieraDetConfig, Sam2VisionConfig

    width, heads, blocks, global_blocks, windows, background = _HIERA[name]
    stages = [width * 2**i for i in range(4)]
    backbone = Sam2HieraDetConfig(
        hidden_size=width,
        num_attention_heads=heads,
        blocks_per_stage=list(blocks),
        embed_dim_per_stage=stages,
        num_attention_heads_per_stage=[heads * 2**i for i in range(4)],
        global_attention_blocks=list(global_blocks),
        window_size_per_stage=list(windows),
        window_positional_embedding_background_size=[background, background],
    )
    return Sam2Config(
        vision_config=Sam2VisionConfig(backbone_config=backbone, backbone_channel_list=stages[::-1])
    )


def load(name: str, weights: Weights) -> tuple[nn.Module, Weights]:
    """The transformers model with the weights asked for. Raises WeightsError."""
    settings = config(name)
    from transformers import Sam2Model

    repository = _repository(name)
    loaded, weights = load_module(
        weights,
        lambda: Sam2Model(settings),
        lambda: Sam2Model.from_pretrained(repository),
        repository,
        lambda tensors: without(tensors, Sam2Model._keys_to_ignore_on_load_unexpected or ()),
    )
    answer_all_masks(loaded)
    return loaded, weights


def methods(loaded: nn.Module, dims: Mapping[str, Dim]) -> tuple[Method, ...]:
    """encode_image and decode_masks."""
    return declare(ImageEncoder(loaded), loaded, dims, encode_limit_bytes=150_000_000)


class ImageEncoder(nn.Module):
    """Image [B,3,1024,1024] → features, from transformers' own blocks.

    What differs from `Sam2Model.get_image_embeddings`: the position embedding is added as its parts
    (the resized background, then the tiled window), so that no [256,256,C] constant has to be
    stored or gathered.
    """

    def __init__(self, loaded: Any):
        super().__init__()
        self.backbone = loaded.vision_encoder.backbone
        self.neck = Neck(loaded)
        self.background = BackgroundPosition(self.backbone.pos_embed.detach(), IMAGE_SIZE // 4)

    def forward(self, image: torch.Tensor):
        x = self._add_position(self.backbone.patch_embed(image))
        levels = []
        for index, block in enumerate(self.backbone.blocks):
            x = block(x)
            if index in self.backbone.stage_ends:
                levels.append(x.permute(0, 3, 1, 2))
        return self.neck(levels)

    def _add_position(self, x: torch.Tensor) -> torch.Tensor:
        batch, height, width, channels = x.shape
        x = x + self.background()
        window = self.backbone.pos_embed_window.permute(0, 2, 3, 1)
        side = window.shape[1]
        x = x.reshape(-1, side, width // side, side, channels) + window.reshape(1, side, 1, side, channels)
        return x.reshape(batch, height, width, channels)


class BackgroundPosition(nn.Module):
    """A small position embedding [1,C,n,n], resized by bicubic interpolation to [1,size,size,C] as
    two products.

    Bicubic interpolation is linear in each direction; its matrix is what it makes of the identity.
    """

    def __init__(self, embedding: torch.Tensor, size: int):
        super().__init__()
        side = embedding.shape[-1]
        one_hot = torch.eye(side)[None, :, :, None]
        self.resize = nn.Buffer(
            F.interpolate(one_hot, size=(size, 1), mode="bicubic")[0, :, :, 0].t().contiguous()
        )
        self.embedding = nn.Buffer(embedding[0].permute(1, 2, 0).contiguous())  # [n,n,C]

    def forward(self) -> torch.Tensor:
        side, _, channels = self.embedding.shape
        size = self.resize.shape[0]
        rows = (self.resize @ self.embedding.reshape(side, side * channels)).reshape(size, side, channels)
        return torch.matmul(self.resize, rows)[None]
