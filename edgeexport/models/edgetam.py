"""EdgeTAM for images: SAM 2 made for phones, with a RepViT backbone (timm) in the place of
Hiera.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from edgeexport.errors import UsageError
from edgeexport.method import Dim, Method, Model, Source, Tolerance, Weights
from edgeexport.modeling.promptable_segmentation import (
    DIMS,
    PREPARE,
    Neck,
    answer_all_masks,
    declare,
    without,
)
from edgeexport.modeling.weights import load_module, state_sha256

VARIANTS = {"edgetam": {"summary": "EdgeTAM, promptable segmentation made for phones, 9.1 M parameters"}}

_REPOSITORY = "yonigozlan/EdgeTAM-hf"  # the weights by Meta, as transformers names them
_RANDOM_GAIN = 0.7


def model(name: str) -> Model:
    """The variant `name` of VARIANTS."""
    return Model(
        name=name,
        summary=VARIANTS[name]["summary"],
        source=Source(_REPOSITORY, "main", "Apache-2.0", "https://arxiv.org/abs/2501.07256"),
        load=load,
        methods=methods,
        dims=DIMS,
        tolerances={
            "fp32": Tolerance(1e-4, 80.0, "float32 sums in another order over 24 blocks; 2e-6 was measured")
        },
        pipelines=("segmentation",),
        prepare=PREPARE,
    )


def config():
    """The transformers configuration.

    The backbone is named here: the default of transformers 5.23 misspells `architecture`, and a
    ResNet would be built.
    """
    from edgeexport.modeling.torchvision_operators import ensure_torchvision

    if importlib.util.find_spec("timm") is None:
        raise UsageError("EdgeTAM needs timm, which holds its backbone: pip install 'edgeexport[edgetam]'.")
    ensure_torchvision()
    from transformers import EdgeTamConfig, EdgeTamVisionConfig, TimmWrapperConfig

    backbone = TimmWrapperConfig(
        architecture="repvit_m1",
        model_args={"in_chans": 3, "features_only": True, "out_indices": [0, 1, 2, 3]},
    )
    return EdgeTamConfig(vision_config=EdgeTamVisionConfig(backbone_config=backbone))


def load(weights: Weights) -> tuple[nn.Module, Weights]:
    """The transformers model with the weights asked for.

    Raises WeightsError, and UsageError without timm.
    """
    settings = config()
    from transformers import EdgeTamModel

    loaded, weights = load_module(
        weights,
        lambda: EdgeTamModel(settings),
        lambda: EdgeTamModel.from_pretrained(_REPOSITORY, config=settings),
        _REPOSITORY,
        lambda tensors: without(tensors, EdgeTamModel._keys_to_ignore_on_load_unexpected or ()),
    )
    if weights.source == "random":
        _balance(loaded)
        weights = weights.loaded(state_sha256(loaded), weights.origin)
    answer_all_masks(loaded)
    return loaded, weights


def _balance(loaded: nn.Module) -> None:
    """Scale random batch norms so that what the image says reaches the last stage.

    Each block of RepViT adds two normalised branches to its input: with norms near 1 random
    activations grow to 1e5, with small ones only biases are left and a check would see nothing of
    the image. At 0.7 they stay near 1.
    """
    for module in loaded.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.weight.mul_(_RANDOM_GAIN)


def methods(loaded: nn.Module, dims: Mapping[str, Dim]) -> tuple[Method, ...]:
    """encode_image and decode_masks."""
    return declare(ImageEncoder(loaded), loaded, dims, encode_limit_bytes=60_000_000)


class ImageEncoder(nn.Module):
    """Image [B,3,1024,1024] → features, from timm's backbone and transformers' neck."""

    def __init__(self, loaded: Any):
        super().__init__()
        self.backbone = loaded.vision_encoder.backbone.timm_model
        self.neck = Neck(loaded)

    def forward(self, image: torch.Tensor):
        return self.neck(self.backbone(image))
