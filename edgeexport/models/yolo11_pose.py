"""YOLO11 pose (Ultralytics): a photo to people, a box and 17 keypoints each.

Needs the extra [yolo], which is AGPL-3.0.
"""

from __future__ import annotations

import copy
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn

from edgeexport.errors import UsageError
from edgeexport.method import Dim, Input, Method, Model, Output, Rule, Source, Tolerance, Weights
from edgeexport.modeling.weights import load_module, state_sha256
from edgeexport.samplers import Photo

VARIANTS = {
    "yolo11n-pose": {
        "summary": "YOLO11 nano, people with 17 keypoints, 2.9 M parameters, AGPL-3.0",
        "aliases": ("yolo11-pose",),
    },
    "yolo11s-pose": {"summary": "YOLO11 small, people with 17 keypoints, 9.9 M parameters, AGPL-3.0"},
    "yolo11m-pose": {"summary": "YOLO11 medium, people with 17 keypoints, 20.9 M parameters, AGPL-3.0"},
    "yolo11l-pose": {"summary": "YOLO11 large, people with 17 keypoints, 26.2 M parameters, AGPL-3.0"},
    "yolo11x-pose": {"summary": "YOLO11 extra large, people with 17 keypoints, 58.8 M parameters, AGPL-3.0"},
}

IMAGE_SIZE = 640
KEYPOINTS = (
    "nose",
    "left eye",
    "right eye",
    "left ear",
    "right ear",
    "left shoulder",
    "right shoulder",
    "left elbow",
    "right elbow",
    "left wrist",
    "right wrist",
    "left hip",
    "right hip",
    "left knee",
    "right knee",
    "left ankle",
    "right ankle",
)
SKELETON = (
    (15, 13),
    (13, 11),
    (16, 14),
    (14, 12),
    (11, 12),
    (5, 11),
    (6, 12),
    (5, 6),
    (5, 7),
    (6, 8),
    (7, 9),
    (8, 10),
    (1, 2),
    (0, 1),
    (0, 2),
    (1, 3),
    (2, 4),
    (3, 5),
    (4, 6),
)

# What a released checkpoint pickles. None of these is imported to read one; see
# weights.read_checkpoint.
_PICKLED = (
    "ultralytics.nn.tasks.PoseModel",
    *(f"ultralytics.nn.modules.conv.{name}" for name in ("Conv", "DWConv", "Concat")),
    *(
        f"ultralytics.nn.modules.block.{name}"
        for name in ("C3k2", "C3k", "Bottleneck", "SPPF", "C2PSA", "PSABlock", "Attention", "DFL")
    ),
    "ultralytics.nn.modules.head.Pose",
    "torch.nn.modules.conv.Conv2d",
    "torch.nn.modules.batchnorm.BatchNorm2d",
    "torch.nn.modules.activation.SiLU",
    "torch.nn.modules.linear.Identity",
    "torch.nn.modules.pooling.MaxPool2d",
    "torch.nn.modules.upsampling.Upsample",
    "torch.nn.modules.container.Sequential",
    "torch.nn.modules.container.ModuleList",
)

_RANDOM_GAIN = 1.3
"""SiLU leaves 0.6 of the scale of what it is given. With gains of 1 random activations would fade
to a constant over 23 blocks, and hide errors. With this one their deviation over space is 0.006 to
0.2 at every block, in yolo11n and in yolo11l; with 1.5 those of yolo11x grow a hundredfold, and
eager itself is 0.3 pixels from float64.
"""


def model(name: str) -> Model:
    """The variant `name` of VARIANTS."""
    return Model(
        name=name,
        summary=VARIANTS[name]["summary"],
        source=Source("https://github.com/ultralytics/ultralytics", "8.4", "AGPL-3.0"),
        load=lambda weights: load(name, weights),
        methods=methods,
        dims=(Dim("batch", 1, 16),),
        tolerances={
            "fp32": Tolerance(
                1e-6,
                110.0,
                "float32 sums in another order and norms folded into convolutions: 1e-3 of 1000 pixels; 2e-4"
                " pixels were measured",
            )
        },
        pipelines=("pose",),
        precisions={"int8": (Rule("static_int8", operators="conv2d"),)},
        prepare={
            "image_size": IMAGE_SIZE,
            "resize": "bilinear without antialiasing, aspect ratio kept, centred",
            "padding": 114,
            "scale": "0 to 1",
            "keypoints": KEYPOINTS,
            "skeleton": SKELETON,
        },
    )


def load(name: str, weights: Weights) -> tuple[nn.Module, Weights]:
    """Ultralytics' PoseModel with the weights asked for, norms not folded.

    Raises WeightsError, UsageError without the extra.
    """
    loaded, weights = load_module(
        weights,
        lambda: _architecture(name),
        lambda: _pretrained(name),
        f"Ultralytics' {name}.pt",
        module_classes=_PICKLED,
    )
    if weights.source == "random":
        _settle(loaded)
        weights = weights.loaded(state_sha256(loaded), weights.origin)
    return loaded, weights


def _architecture(name: str) -> nn.Module:
    """The PoseModel of a variant for one class (person) and 17 keypoints, from Ultralytics' own
    description of it.
    """
    return _ultralytics("nn.tasks").PoseModel(
        f"{name}.yaml", nc=1, data_kpt_shape=(len(KEYPOINTS), 3), verbose=False
    )


def _pretrained(name: str) -> nn.Module:
    """The released model; its checkpoint is downloaded once, and read without running it."""
    place = Path(torch.hub.get_dir()) / "checkpoints" / f"{name}.pt"
    place.parent.mkdir(parents=True, exist_ok=True)
    file = _ultralytics("utils.downloads").attempt_download_asset(place, retry=1)
    return load(name, Weights("checkpoint", path=str(file)))[0]


def _ultralytics(part: str):
    """A module of Ultralytics. Raises UsageError where the extra is missing.

    On import it sets the threads of our other processes, and replaces `Image.open` and
    `torch.save`; all of that is undone. It may not install packages by itself either.
    """
    import importlib

    from PIL import Image

    os.environ.setdefault("YOLO_AUTOINSTALL", "false")
    os.environ.setdefault("YOLO_VERBOSE", "false")
    threads, opened, saved = os.environ.get("OMP_NUM_THREADS"), Image.open, torch.save
    try:
        return importlib.import_module(f"ultralytics.{part}")
    except ImportError as error:
        raise UsageError(
            f"YOLO11 needs Ultralytics, which cannot be imported ({error}): pip install 'edgeexport[yolo]'."
            " It is AGPL-3.0 licensed."
        ) from error
    finally:
        Image.open, torch.save = opened, saved
        if threads is None:
            os.environ.pop("OMP_NUM_THREADS", None)


def _settle(loaded: Any) -> None:
    """After random filling: the fixed bins of the box distribution as they are, and gains that keep
    the scale.
    """
    with torch.no_grad():
        bins = loaded.model[-1].dfl.conv.weight
        bins.copy_(torch.arange(bins.numel()).reshape(bins.shape))
        for module in loaded.modules():
            if isinstance(getattr(module, "act", None), nn.SiLU):
                module.bn.weight.mul_(_RANDOM_GAIN)


def methods(loaded: nn.Module, dims: Mapping[str, Dim]) -> tuple[Method, ...]:
    """detect.

    All 8400 candidates are returned. Choosing the best 300 in the graph does not pay: topk and
    gather run outside the delegate, and take 0.5 ms where a comparison with the threshold outside
    takes 0.04 and handing out all answers 0.4 (1 thread); and the best 300 before suppression are
    not the best 300 after it.
    """
    image = Input(
        "image",
        ("batch", 3, IMAGE_SIZE, IMAGE_SIZE),
        meaning="RGB, scaled to fit 640 x 640, padded with grey (114)",
        unit="share of full brightness",
        range=(0.0, 1.0),
        sample=Photo((0.0,) * 3, (1.0,) * 3),
    )
    outputs = (
        Output("boxes", "left, top, right, bottom of each of 8400 candidates, in pixels of the input"),
        Output("scores", "confidence that the candidate is a person, 0 to 1"),
        Output("keypoints", "x, y of 17 keypoints of each candidate, in pixels of the input"),
        Output("visibility", "confidence of each keypoint, 0 to 1"),
    )
    batch = dims["batch"]
    return (
        Method(
            "detect",
            with_static_head(loaded, IMAGE_SIZE),
            (image,),
            outputs,
            (batch,),
            OriginalDetector(loaded),
            4_000_000 * batch.max,
        ),
    )


def with_static_head(loaded: Any, size: int) -> nn.Module:
    """A copy of the PoseModel for images of `size` x `size`, norms folded into convolutions, with
    PoseHead in place of its head.
    """
    detector = copy.deepcopy(loaded).fuse(verbose=False)
    head = detector.model[-1]
    detector.model[-1] = PoseHead(head, size)
    detector.model[-1].i, detector.model[-1].f = (
        head.i,
        head.f,
    )  # its place in the graph, and the layers that it reads
    return detector


class PoseHead(nn.Module):
    """Features of three strides → boxes [B,A,4], scores [B,A], keypoints [B,A,17,2], visibility
    [B,A,17].

    What differs from Ultralytics' head: cells are counted for one input size when this is made, not
    from each input's shape (whose `make_anchors` strict capture refuses); channels are last, as the
    convolutions before compute them; the distribution's expectation and the stride are one linear
    map; keypoints and visibilities are convolutions of their own, scaled by a power of two, which
    is exact.
    """

    def __init__(self, head: Any, size: int):
        super().__init__()
        strides = [int(s) for s in head.stride]
        self.bins, self.points = head.reg_max, head.kpt_shape[0]
        self.box, self.score = head.cv2, head.cv3
        self.pose = nn.ModuleList(seq[:-1] for seq in head.cv4)
        self.keypoints = nn.ModuleList(_scaled(seq[-1], [0, 1], 2.0 * s) for seq, s in zip(head.cv4, strides))
        self.visibility = nn.ModuleList(_scaled(seq[-1], [2], 1.0) for seq in head.cv4)
        self.distance = nn.ModuleList(_expectation(head.reg_max, s) for s in strides)
        self.centres = nn.ModuleList(Cells(size // s, s, 0.5, 2) for s in strides)
        self.corners = nn.ModuleList(Cells(size // s, s, 0.0, self.points) for s in strides)

    def forward(self, features: list[torch.Tensor]):
        levels = [self._level(index, x) for index, x in enumerate(features)]
        boxes, scores, keypoints, visibility = (torch.cat(parts, 1) for parts in zip(*levels))
        keypoints = keypoints.reshape(keypoints.shape[0], -1, self.points, 2)
        return boxes, scores.squeeze(-1).sigmoid(), keypoints, visibility.sigmoid()

    def _level(self, index: int, x: torch.Tensor):
        bins = _channels_last(self.box[index](x))
        shares = bins.reshape(-1, *bins.shape[1:3], 4, self.bins).softmax(-1).reshape(bins.shape)
        pose = self.pose[index](x)
        answers = (
            self.centres[index](self.distance[index](shares)),
            _channels_last(self.score[index](x)),
            self.corners[index](_channels_last(self.keypoints[index](pose))),
            _channels_last(self.visibility[index](pose)),
        )
        return [a.flatten(1, 2) for a in answers]


class Cells(nn.Module):
    """Adds to [B,n,n,2k] the x, y (k times) of each cell of an n x n grid: pixels of the input,
    `offset` in cells.

    As a row and a column that are broadcast: written out, the grids of 34 channels would be a tenth
    of yolo11n's file.
    """

    def __init__(self, count: int, stride: int, offset: float, times: int):
        super().__init__()
        line = ((torch.arange(count) + offset) * stride)[:, None]
        zero = torch.zeros_like(line)
        self.x = nn.Buffer(torch.cat([line, zero], 1).repeat(1, times).reshape(1, 1, count, -1))
        self.y = nn.Buffer(torch.cat([zero, line], 1).repeat(1, times).reshape(1, count, 1, -1))

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        return values + self.x + self.y


def _channels_last(x: torch.Tensor) -> torch.Tensor:
    return x.permute(0, 2, 3, 1)


def _scaled(conv: nn.Conv2d, parts: list[int], scale: float) -> nn.Conv2d:
    """The rows of a 1 x 1 convolution to (x, y, visibility) of each keypoint that make `parts`,
    times `scale`.
    """
    rows = torch.arange(conv.out_channels).reshape(-1, 3)[:, parts].flatten()
    made = nn.Conv2d(conv.in_channels, len(rows), 1).requires_grad_(False)
    assert made.bias is not None and conv.bias is not None
    made.weight.copy_(conv.weight[rows] * scale)
    made.bias.copy_(conv.bias[rows] * scale)
    return made


def _expectation(bins: int, stride: int) -> nn.Linear:
    """4 distributions over `bins` distances in cells → the signed distances to left, top, right,
    bottom in pixels.
    """
    signs = torch.tensor([-1.0, -1.0, 1.0, 1.0]) * stride
    linear = nn.Linear(4 * bins, 4, bias=False).requires_grad_(False)
    linear.weight.copy_(torch.block_diag(*(torch.arange(float(bins)) * sign for sign in signs)))
    return linear


class OriginalDetector(nn.Module):
    """What Ultralytics' PoseModel says, in the order of our outputs; its boxes are centres and
    sizes.
    """

    def __init__(self, loaded: Any):
        super().__init__()
        self.loaded = loaded

    def forward(self, image: torch.Tensor):
        answer = self.loaded(image)[0].transpose(1, 2)  # [B,A,56]
        centres, sizes = answer[..., :2], answer[..., 2:4]
        boxes = torch.cat([centres - sizes / 2, centres + sizes / 2], -1)
        points = answer[..., 5:].unflatten(-1, (-1, 3))
        return boxes, answer[..., 4], points[..., :2], points[..., 2]
