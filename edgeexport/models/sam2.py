"""SAM 2 (Hiera) for images: encode a photo once, then decode a mask for each set of clicks."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
import torch.nn.functional as F
from torch import nn

from edgeexport import segmentation
from edgeexport.inputs import Choice, Normal, OutputOf, Photo, Uniform
from edgeexport.method import Dim, Input, Method, Model, Output, Pipeline, Source, Tolerance, Weights
from edgeexport.weights import load_module

VARIANTS = {
    "sam2-tiny": {"summary": "SAM 2.1 Hiera tiny, promptable segmentation, 31 M parameters", "aliases": ("sam2",)},
    "sam2-small": {"summary": "SAM 2.1 Hiera small, promptable segmentation, 38 M parameters"},
    "sam2-base-plus": {"summary": "SAM 2.1 Hiera base-plus, promptable segmentation, 73 M parameters"},
    "sam2-large": {"summary": "SAM 2.1 Hiera large, promptable segmentation, 216 M parameters"},
}

IMAGE_SIZE = 1024
_MEAN, _STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)

# Table of variants (SAM 2.1, https://arxiv.org/abs/2408.00714): width, heads, blocks a stage, global blocks, window sizes,
# background size of the position embedding.
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
        dims=(Dim("batch", 1, 1), Dim("points", 1, 16)),
        tolerances={"fp32": Tolerance(1e-4, 80.0, "float32 sums in another order over 12 to 48 blocks; 1e-6 was measured")},
        pipeline=Pipeline(segmentation.OPTIONS, segmentation.run, "--image photo.jpg --point 320,240 --overlay mask.png"),
        prepare={"image_size": IMAGE_SIZE, "mean": _MEAN, "std": _STD, "resize": "bilinear, aspect ratio not kept"},
    )


def _repository(name: str) -> str:
    """Where Meta's released weights of a variant are."""
    return f"facebook/{name.replace('sam2', 'sam2.1-hiera')}"


def config(name: str):
    """The transformers configuration of a variant."""
    from edgeexport.torchvision_ops import ensure_torchvision

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
    return Sam2Config(vision_config=Sam2VisionConfig(backbone_config=backbone, backbone_channel_list=stages[::-1]))


def load(name: str, weights: Weights) -> tuple[nn.Module, Weights]:
    """The transformers model with the weights asked for. Raises WeightsError."""
    settings = config(name)
    from transformers import Sam2Model

    repository = _repository(name)
    loaded, weights = load_module(
        weights, lambda: Sam2Model(settings), lambda: Sam2Model.from_pretrained(repository), repository, _image_only
    )
    # Which of the four masks to show depends on data; the pipeline chooses, the program returns all of them.
    loaded.mask_decoder._dynamic_multimask_via_stability = lambda masks, scores: (masks, scores)
    return loaded, weights


def _image_only(tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Without the memory modules of video tracking, which released checkpoints carry too."""
    import re

    from transformers import Sam2Model

    video = [re.compile(p) for p in Sam2Model._keys_to_ignore_on_load_unexpected]
    return {k: v for k, v in tensors.items() if not any(p.search(k) for p in video)}


def methods(loaded: nn.Module, dims: Mapping[str, Dim]) -> tuple[Method, ...]:
    """encode_image and decode_masks."""
    batch, points = dims["batch"], dims["points"]
    features = (
        ("image_embedding", (256, 64, 64), "image features, with the no-memory embedding added"),
        ("high_res_s0", (32, 256, 256), "features at stride 4"),
        ("high_res_s1", (64, 128, 128), "features at stride 8"),
    )
    size = float(IMAGE_SIZE)
    image = Input(
        "image", ("batch", 3, IMAGE_SIZE, IMAGE_SIZE), meaning="RGB, resized to 1024 x 1024, normalised with mean and std",
        unit="standard deviations", range=(-2.2, 2.7), sample=Photo(_MEAN, _STD),
    )  # fmt: skip
    prompts = (
        Input("points", ("batch", "points", 2), meaning="x, y of clicks and box corners in the resized image", unit="pixels", range=(0.0, size), sample=Uniform(0.0, size)),
        Input("labels", ("batch", "points"), "int32", "1 object, 0 background, 2 and 3 the corners of a box, -1 none", range=(-1, 3), sample=Choice((0, 1, 2, 3))),
        Input("mask_input", ("batch", 1, 256, 256), meaning="logits of an earlier mask; zeros when there is none", range=(-32.0, 32.0), sample=Normal(4.0)),
        Input("has_mask", ("batch",), meaning="1 where mask_input counts, 0 where not", range=(0.0, 1.0), sample=Choice((0.0, 1.0))),
    )
    return (
        Method(
            "encode_image", ImageEncoder(loaded), (image,), tuple(Output(n, m) for n, _, m in features), (batch,),
            reference=OriginalEncoder(loaded), planned_limit_bytes=150_000_000 * batch.max,
        ),
        Method(
            "decode_masks", MaskDecoder(loaded),
            (*(Input(n, ("batch", *s), meaning=m, sample=OutputOf("encode_image", n)) for n, s, m in features), *prompts),
            (
                Output("masks", "mask logits at 256 x 256: the single mask, then three for an ambiguous prompt", "mask_iou", 0.999),
                Output("iou_scores", "predicted quality of each mask, 0 to 1"),
                Output("object_score", "logit that there is an object"),
            ),
            (batch, points), reference=OriginalDecoder(loaded), planned_limit_bytes=50_000_000 * batch.max,
        ),
    )  # fmt: skip


class ImageEncoder(nn.Module):
    """Image [B,3,1024,1024] → features, from transformers' own blocks.

    What differs from `Sam2Model.get_image_embeddings`: the position embedding is added as its parts (the
    resized background, then the tiled window), so that no [256,256,C] constant has to be stored
    or gathered; and position encodings that nobody reads are not computed.
    """

    def __init__(self, loaded: nn.Module):
        super().__init__()
        self.backbone = loaded.vision_encoder.backbone
        self.convs = loaded.vision_encoder.neck.convs
        self.top_down = loaded.vision_encoder.neck.fpn_top_down_levels
        self.conv_s0, self.conv_s1 = loaded.mask_decoder.conv_s0, loaded.mask_decoder.conv_s1
        self.no_memory = nn.Buffer(loaded.no_memory_embedding.detach().reshape(1, -1, 1, 1))
        self.background = BackgroundPosition(self.backbone.pos_embed.detach(), IMAGE_SIZE // 4)

    def forward(self, image: torch.Tensor):
        x = self._add_position(self.backbone.patch_embed(image))
        levels = []
        for index, block in enumerate(self.backbone.blocks):
            x = block(x)
            if index in self.backbone.stage_ends:
                levels.append(x.permute(0, 3, 1, 2))
        last = len(levels) - 1
        laterals = [conv(level) for conv, level in zip(self.convs, reversed(levels))][::-1]
        embedding = laterals[last]
        for level in range(last - 1, 1, -1):
            upper = F.interpolate(embedding, scale_factor=2.0, mode="nearest")
            embedding = laterals[level] + upper if level in self.top_down else laterals[level]
        return embedding + self.no_memory, self.conv_s0(laterals[0]), self.conv_s1(laterals[1])

    def _add_position(self, x: torch.Tensor) -> torch.Tensor:
        batch, height, width, channels = x.shape
        x = x + self.background()
        window = self.backbone.pos_embed_window.permute(0, 2, 3, 1)
        side = window.shape[1]
        x = x.reshape(-1, side, width // side, side, channels) + window.reshape(1, side, 1, side, channels)
        return x.reshape(batch, height, width, channels)


class BackgroundPosition(nn.Module):
    """A small position embedding [1,C,n,n], resized by bicubic interpolation to [1,size,size,C] as two products.

    Bicubic interpolation is linear in each direction; its matrix is what it makes of the identity.
    """

    def __init__(self, embedding: torch.Tensor, size: int):
        super().__init__()
        side = embedding.shape[-1]
        one_hot = torch.eye(side)[None, :, :, None]
        self.resize = nn.Buffer(F.interpolate(one_hot, size=(size, 1), mode="bicubic")[0, :, :, 0].t().contiguous())
        self.embedding = nn.Buffer(embedding[0].permute(1, 2, 0).contiguous())  # [n,n,C]

    def forward(self) -> torch.Tensor:
        side, _, channels = self.embedding.shape
        size = self.resize.shape[0]
        rows = (self.resize @ self.embedding.reshape(side, side * channels)).reshape(size, side, channels)
        return torch.matmul(self.resize, rows)[None]


class MaskDecoder(nn.Module):
    """Features and prompts → four masks [B,4,256,256], their scores [B,4], an object score [B,1].

    The prompt's embedding is written without `where` and integer lookups, which no delegate
    takes: for integer labels a one-hot product with the table of label embeddings is the same.
    """

    def __init__(self, loaded: nn.Module):
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
        """[B,N,2], [B,N] → [B,N+1,256]: with the padding point that SAM adds when no box is given as a box."""
        points = F.pad(points + 0.5, (0, 0, 0, 1))
        labels = F.pad(labels.to(torch.float32), (0, 1), value=-1.0)
        angles = (points * self.scale - 1.0) @ self.frequencies
        position = torch.cat([angles.sin(), angles.cos()], dim=-1)
        one_hot = (1.0 - (labels.unsqueeze(-1) - self.label_ids).abs()).clamp(min=0.0)
        return position * (1.0 - one_hot[..., :1]) + one_hot @ self.label_table


class OriginalEncoder(nn.Module):
    """What transformers' Sam2Model says, in the order of our outputs."""

    def __init__(self, loaded: nn.Module):
        super().__init__()
        self.loaded = loaded

    def forward(self, image):
        s0, s1, embedding = self.loaded.get_image_embeddings(image)
        return embedding, s0, s1


class OriginalDecoder(nn.Module):
    """transformers' prompt encoder and mask decoder; has_mask chooses as leaving out the mask would."""

    def __init__(self, loaded: nn.Module):
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
