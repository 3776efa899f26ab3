"""A micro MViT that tells which way a digit moves: torchvision's own class, small enough to be
trained in minutes.

It is built as any user's own model is, with the weights that `scripts/train-micro mvit` made:

    edgeexport build runtime_tests/micro_mvit.py:MODEL \\
        --weights runtime_tests/micro/mvit.safetensors
"""

from dataclasses import replace

import numpy as np
import torch

from edgeexport.errors import WeightsError
from edgeexport.method import Output, Tolerance
from edgeexport.modeling.weights import load_module
from edgeexport.models import mvit

FRAMES, SIZE = 8, 32
LABELS = ("up", "down", "left", "right")
_STEPS = np.array([(-1, 0), (1, 0), (0, -1), (0, 1)])  # rows, columns a frame
_MEAN, _STD = (0.5, 0.5, 0.5), (0.5, 0.5, 0.5)
TRAINED_ON, HELD_OUT = range(1400), range(1400, 1797)
"""Which of scikit-learn's digits were trained on, and which the model never saw."""


def build():
    """Three blocks with a class token, pooled keys and values, and pooled queries in the second: as
    mvit_v1_b, 32 to 64 wide.
    """
    from edgeexport.modeling.torchvision_operators import ensure_torchvision

    ensure_torchvision()
    from torchvision.models.video.mvit import MSBlockConfig, MViT

    blocks = [
        MSBlockConfig(1, 32, 64, [3, 3, 3], [3, 3, 3], [1, 1, 1], [1, 2, 2]),
        MSBlockConfig(2, 64, 64, [3, 3, 3], [3, 3, 3], [1, 2, 2], [1, 1, 1]),
        MSBlockConfig(2, 64, 64, [3, 3, 3], [3, 3, 3], [1, 1, 1], [1, 1, 1]),
    ]
    return MViT(
        (SIZE, SIZE),
        FRAMES,
        blocks,
        residual_pool=False,
        residual_with_cls_embed=True,
        rel_pos_embed=False,
        proj_after_attn=False,
        num_classes=len(LABELS),
    )


def load(weights):
    """The micro model with weights of a file, or random ones. Raises WeightsError."""

    def nothing_released():
        raise WeightsError(
            "The micro MViT has no released weights: give --weights runtime_tests/micro/mvit.safetensors, or"
            " random."
        )

    return load_module(weights, build, nothing_released, "runtime_tests/micro")


MODEL = replace(
    mvit.model("mvit-v1-b"),
    name="micro-mvit",
    summary="a micro MViT: which way does a digit move",
    load=load,
    methods=lambda module, dims: mvit.classify(
        module, dims, FRAMES, SIZE, _MEAN, _STD, Output("logits", "one logit a direction")
    ),
    tolerances={"fp32": Tolerance(1e-5, 90.0, "float32 sums in another order over 3 blocks")},
    prepare={
        "frames": FRAMES,
        "frames_per_second": 7.5,
        "resize_short_side": SIZE,
        "crop": SIZE,
        "mean": _MEAN,
        "std": _STD,
        "labels": list(LABELS),
    },
)


def frames(indices, n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """`n` clips of a moving digit out of `indices`: uint8 [n,T,S,S], and the direction [n] as an
    index of LABELS.

    A digit of 16 x 16 pixels moves 1 or 2 pixels a frame. Only the order of the frames tells:
    played backwards, a clip is one of the opposite direction.
    """
    from sklearn.datasets import load_digits

    random = np.random.default_rng(seed)
    digits = load_digits().images[random.choice(np.asarray(indices), n)].repeat(2, 1).repeat(2, 2) * (
        255 / 16
    )
    side = digits.shape[1]
    direction, speed = random.integers(len(LABELS), size=n), random.integers(1, 3, size=n)
    path = _STEPS[direction][:, None] * (speed[:, None] * np.arange(FRAMES))[..., None]  # [n,T,2]
    low, high = -path.min(1), SIZE - side - path.max(1)
    corners = path + random.integers(low, high + 1)[:, None]
    clips = random.normal(20.0, 10.0, size=(n, FRAMES, SIZE, SIZE))
    for clip, digit, at in zip(clips, digits, corners):
        for frame, (row, column) in zip(clip, at):
            frame[row : row + side, column : column + side] += digit
    return clips.clip(0, 255).astype(np.uint8), direction


def batch(indices, n: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The same as the model takes them: float32 [n,3,T,S,S] in -1..1, and int64 [n]."""
    clips, direction = frames(indices, n, seed)
    pixels = (torch.from_numpy(clips).float() / 255.0 - 0.5) / 0.5
    return pixels[:, None].expand(-1, 3, -1, -1, -1).contiguous(), torch.from_numpy(direction)
