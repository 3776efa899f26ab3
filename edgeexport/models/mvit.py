"""MViT video classifiers (torchvision): a clip of 16 frames to the logits of 400 Kinetics
classes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import nn

from edgeexport.method import Dim, Input, Method, Model, Output, Source, Tolerance, Weights
from edgeexport.modeling.weights import load_module
from edgeexport.samplers import Photo

VARIANTS = {
    "mvit-v1-b": {
        "summary": "MViT v1 base 16x4, video classification, 36.6 M parameters",
        "aliases": ("mvit",),
    },
    "mvit-v2-s": {"summary": "MViT v2 small 16x4, video classification, 34.5 M parameters"},
}

FRAMES, SIZE = 16, 224
_MEAN, _STD = (0.45, 0.45, 0.45), (0.225, 0.225, 0.225)
_PAPERS = {"mvit-v1-b": "https://arxiv.org/abs/2104.11227", "mvit-v2-s": "https://arxiv.org/abs/2112.01526"}


def model(name: str) -> Model:
    """The variant `name` of VARIANTS."""
    return Model(
        name=name,
        summary=VARIANTS[name]["summary"],
        source=Source("https://github.com/pytorch/vision", "0.28", "BSD-3-Clause", _PAPERS[name]),
        load=lambda weights: load(name, weights),
        methods=methods,
        dims=(Dim("batch", 1, 16),),
        tolerances={
            "fp32": Tolerance(5e-6, 100.0, "float32 sums in another order over 16 blocks; 1e-6 was measured")
        },
        pipelines=("video",),
        prepare={
            "frames": FRAMES,
            "frames_per_second": 7.5,
            "resize_short_side": 256,
            "crop": SIZE,
            "mean": _MEAN,
            "std": _STD,
            "labels": _labels(),
        },
    )


def _labels() -> list[str]:
    from edgeexport.modeling.torchvision_operators import ensure_torchvision

    ensure_torchvision()
    from torchvision.models import get_model_weights

    weights: Any = get_model_weights("mvit_v1_b")
    return list(weights.KINETICS400_V1.meta["categories"])


def load(name: str, weights: Weights) -> tuple[nn.Module, Weights]:
    """The torchvision model with the weights asked for. Raises WeightsError."""
    from edgeexport.modeling.torchvision_operators import ensure_torchvision

    ensure_torchvision()
    from torchvision.models import get_model

    builder = name.replace("-", "_")
    return load_module(
        weights,
        lambda: get_model(builder, weights=None),
        lambda: get_model(builder, weights="KINETICS400_V1"),
        f"torchvision's {builder} KINETICS400_V1",
    )


def methods(loaded: nn.Module, dims: Mapping[str, Dim]) -> tuple[Method, ...]:
    """classify."""
    logits = Output("logits", "one logit a Kinetics-400 class", "top5_overlap", 1.0)
    return classify(loaded, dims, FRAMES, SIZE, _MEAN, _STD, logits)


def classify(
    loaded: nn.Module,
    dims: Mapping[str, Dim],
    frames: int,
    size: int,
    mean: tuple[float, ...],
    std: tuple[float, ...],
    logits: Output,
) -> tuple[Method, ...]:
    """The method of any MViT that takes clips [B,3,frames,size,size]."""
    clip = Input(
        "clip",
        ("batch", 3, frames, size, size),
        meaning="RGB frames, oldest first, normalised with mean and std",
        unit="standard deviations",
        range=(-2.0, 2.5),
        sample=Photo(mean, std),
    )
    return (Method("classify", loaded, (clip,), (logits,), (dims["batch"],)),)
