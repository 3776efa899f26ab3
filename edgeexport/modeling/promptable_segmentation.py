"""What promptable segmentation models of SAM 2's kind share: two methods, the neck, the prompts and
the mask decoder.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from edgeexport.method import Dim, Input, Method, Output
from edgeexport.samplers import Choice, Normal, OutputOf, Photo, Uniform

IMAGE_SIZE = 1024
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
DIMS = (Dim("batch", 1, 1), Dim("points", 1, 16))
PREPARE = {"image_size": IMAGE_SIZE, "mean": MEAN, "std": STD, "resize": "bilinear, aspect ratio not kept"}

FEATURES = (
    ("image_embedding", (256, 64, 64), "image features, with the no-memory embedding added"),
    ("high_res_s0", (32, 256, 256), "features at stride 4"),
    ("high_res_s1", (64, 128, 128), "features at stride 8"),
)
"""What encode_image gives to decode_masks: name, sizes of one image, meaning."""


def declare(
    encoder: nn.Module, loaded: nn.Module, dims: Mapping[str, Dim], *, encode_limit_bytes: int
) -> tuple[Method, ...]:
    """encode_image, done by `encoder`, and decode_masks, of a model of transformers with SAM 2's
    prompt encoder and mask decoder.

    `encode_limit_bytes` is what encode_image may plan for one image.
    """
    batch, points = dims["batch"], dims["points"]
    image = Input(
        "image",
        ("batch", 3, IMAGE_SIZE, IMAGE_SIZE),
        meaning="RGB, resized to 1024 x 1024, normalised with mean and std",
        unit="standard deviations",
        range=(-2.2, 2.7),
        sample=Photo(MEAN, STD),
    )
    return (
        Method(
            "encode_image",
            encoder,
            (image,),
            tuple(Output(n, m) for n, _, m in FEATURES),
            (batch,),
            reference=OriginalEncoder(loaded),
            planned_limit_bytes=encode_limit_bytes * batch.max,
        ),
        Method(
            "decode_masks",
            MaskDecoder(loaded),
            (
                *(
                    Input(n, ("batch", *s), meaning=m, sample=OutputOf("encode_image", n))
                    for n, s, m in FEATURES
                ),
                *_prompts(float(IMAGE_SIZE)),
            ),
            (
                Output(
                    "masks",
                    "mask logits at 256 x 256: the single mask, then three for an ambiguous prompt",
                    "mask_iou",
                    0.999,
                ),
                Output("iou_scores", "predicted quality of each mask, 0 to 1"),
                Output("object_score", "logit that there is an object"),
            ),
            (batch, points),
            reference=OriginalDecoder(loaded),
            planned_limit_bytes=50_000_000 * batch.max,
        ),
    )


def _prompts(size: float) -> tuple[Input, ...]:
    """Clicks, boxes and an earlier mask for decode_masks; `size` is that of the resized image."""
    return (
        Input(
            "points",
            ("batch", "points", 2),
            meaning="x, y of clicks and box corners in the resized image",
            unit="pixels",
            range=(0.0, size),
            sample=Uniform(0.0, size),
        ),
        Input(
            "labels",
            ("batch", "points"),
            "int32",
            "1 object, 0 background, 2 and 3 the corners of a box, -1 none",
            range=(-1, 3),
            sample=Choice((0, 1, 2, 3)),
        ),
        Input(
            "mask_input",
            ("batch", 1, 256, 256),
            meaning="logits of an earlier mask; zeros when there is none",
            range=(-32.0, 32.0),
            sample=Normal(4.0),
        ),
        Input(
            "has_mask",
            ("batch",),
            meaning="1 where mask_input counts, 0 where not",
            range=(0.0, 1.0),
            sample=Choice((0.0, 1.0)),
        ),
    )


def answer_all_masks(loaded: Any) -> None:
    """Which of the four masks to show depends on data; the pipeline chooses, the program returns
    all of them.
    """
    loaded.mask_decoder._dynamic_multimask_via_stability = lambda masks, scores: (masks, scores)


def without(tensors: Mapping[str, torch.Tensor], patterns: Iterable[str]) -> dict[str, torch.Tensor]:
    """A checkpoint's tensors but those whose names match: the memory modules of video tracking,
    which released ones carry.
    """
    compiled = [re.compile(p) for p in patterns]
    return {k: v for k, v in tensors.items() if not any(p.search(k) for p in compiled)}


class Neck(nn.Module):
    """Levels of the backbone, NCHW, from stride 4 to 32 → image_embedding [B,256,64,64],
    high_res_s0 and high_res_s1.

    What differs from transformers: position encodings that nobody reads are not computed.
    """

    def __init__(self, loaded: Any):
        super().__init__()
        self.convs = loaded.vision_encoder.neck.convs
        self.top_down = loaded.vision_encoder.neck.fpn_top_down_levels
        self.conv_s0, self.conv_s1 = loaded.mask_decoder.conv_s0, loaded.mask_decoder.conv_s1
        self.no_memory = nn.Buffer(loaded.no_memory_embedding.detach().reshape(1, -1, 1, 1))

    def forward(self, levels: list[torch.Tensor]):
        last = len(levels) - 1
        laterals = [conv(level) for conv, level in zip(self.convs, reversed(levels))][::-1]
        embedding = laterals[last]
        for level in range(last - 1, 1, -1):
            upper = F.interpolate(embedding, scale_factor=2.0, mode="nearest")
            embedding = laterals[level] + upper if level in self.top_down else laterals[level]
        return embedding + self.no_memory, self.conv_s0(laterals[0]), self.conv_s1(laterals[1])


class MaskDecoder(nn.Module):
    """Features and prompts → four masks [B,4,256,256], their scores [B,4], an object score [B,1].

    The prompt's embedding is written without `where` and integer lookups, which no delegate
    takes: for integer labels a one-hot product with the table of label embeddings is the same.
    """

    def __init__(self, loaded: Any):
        super().__init__()
        prompt = loaded.prompt_encoder
        self.decoder = loaded.mask_decoder
        self.mask_embed = prompt.mask_embed
        self.scale = 2.0 / prompt.input_image_size
        self.frequencies = nn.Buffer(2 * math.pi * prompt.shared_embedding.positional_embedding.detach())
        table = torch.cat([prompt.not_a_point_embed.weight, prompt.point_embed.weight]).detach()
        self.label_table = nn.Buffer(table.clone())  # rows for labels -1, 0, 1, 2, 3
        self.label_ids = nn.Buffer(torch.arange(-1.0, 4.0))
        self.no_mask = nn.Buffer(prompt.no_mask_embed.weight.detach().reshape(1, -1, 1, 1).clone())
        self.image_position = nn.Buffer(loaded.get_image_wide_positional_embeddings().contiguous())

    def forward(self, image_embedding, high_res_s0, high_res_s1, points, labels, mask_input, has_mask):
        has_mask = has_mask.reshape(-1, 1, 1, 1)
        dense = has_mask * self.mask_embed(mask_input) + (1.0 - has_mask) * self.no_mask
        masks, scores, _, object_score = self.decoder(
            image_embeddings=image_embedding,
            image_positional_embeddings=self.image_position,
            sparse_prompt_embeddings=self.embed_points(points, labels).unsqueeze(1),
            dense_prompt_embeddings=dense,
            multimask_output=False,
            high_resolution_features=[high_res_s0, high_res_s1],
        )
        return masks.squeeze(1), scores.squeeze(1), object_score.squeeze(1)

    def embed_points(self, points: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """[B,N,2], [B,N] → [B,N+1,256]: with the padding point that SAM adds when no box is given
        as a box.
        """
        points = F.pad(points + 0.5, (0, 0, 0, 1))
        labels = F.pad(labels.to(torch.float32), (0, 1), value=-1.0)
        angles = (points * self.scale - 1.0) @ self.frequencies
        position = torch.cat([angles.sin(), angles.cos()], dim=-1)
        one_hot = (1.0 - (labels.unsqueeze(-1) - self.label_ids).abs()).clamp(min=0.0)
        return position * (1.0 - one_hot[..., :1]) + one_hot @ self.label_table


class OriginalEncoder(nn.Module):
    """What transformers' model says, in the order of our outputs."""

    def __init__(self, loaded: Any):
        super().__init__()
        self.loaded = loaded

    def forward(self, image):
        s0, s1, embedding = self.loaded.get_image_embeddings(image)
        return embedding, s0, s1


class OriginalDecoder(nn.Module):
    """transformers' prompt encoder and mask decoder; has_mask chooses as leaving out the mask
    would.
    """

    def __init__(self, loaded: Any):
        super().__init__()
        self.loaded = loaded

    def forward(self, image_embedding, high_res_s0, high_res_s1, points, labels, mask_input, has_mask):
        prompt = self.loaded.prompt_encoder
        args = (points.unsqueeze(1), labels.unsqueeze(1), None)
        sparse, with_mask = prompt(*args, mask_input)
        _, without = prompt(*args, None)
        position = self.loaded.get_image_wide_positional_embeddings()
        masks, scores, _, object_score = self.loaded.mask_decoder(
            image_embeddings=image_embedding,
            image_positional_embeddings=position.repeat(image_embedding.shape[0], 1, 1, 1),
            sparse_prompt_embeddings=sparse,
            dense_prompt_embeddings=torch.where(has_mask.reshape(-1, 1, 1, 1) > 0, with_mask, without),
            multimask_output=False,
            high_resolution_features=[high_res_s0, high_res_s1],
        )
        return masks[:, 0], scores[:, 0], object_score[:, 0]
