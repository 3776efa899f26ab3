"""Pose as a pipeline: a photo or a video to people, each with a box and keypoints in the photo's
own pixels.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edgeexport.errors import InputError, foreign_errors
from edgeexport.method import Option, Pipeline
from edgeexport.pipelines.media.photos import caption_of, read_photo, text_size, with_caption, write_png
from edgeexport.pipelines.video import frames

OPTIONS = (
    Option("image", "photo to look for people in (JPEG, PNG, ...)", "file", sample="photo"),
    Option(
        "video",
        "video file (needs the extra [video]), or a folder of frames in the order of their names",
        "file",
    ),
    Option("rate", "frames taken of each second of a video", "number", default=5),
    Option("confidence", "least score of a person, 0 to 1", default="0.25"),
    Option(
        "iou",
        "of two people whose boxes overlap by more than this share, the one with the lower score is dropped",
        default="0.7",
    ),
    Option("limit", "at most this many people in a photo or frame", "number", default=300),
    Option(
        "overlay", "write the photo with the people on it, as PNG; for a video a folder of them", "output"
    ),
    Option("save", "write the people as JSON", "output", sample="compared"),
)

DRAWN_VISIBILITY = 0.5
"""A keypoint less visible than this is not drawn."""


def run(
    program,
    image: str | None = None,
    video: str | None = None,
    rate: int = 5,
    confidence: str | float = 0.25,
    iou: str | float = 0.7,
    limit: int = 300,
    overlay: str | None = None,
    save: str | None = None,
) -> dict[str, Any]:
    """Find people.

    Returns them with the number of frames and the files written. Raises InputError.
    """
    if (image is None) == (video is None):
        raise InputError("What should be looked at? Give one of --image PHOTO and --video VIDEO.")
    if rate < 1 or limit < 1:
        raise InputError(f"--rate and --limit must be at least 1, not {rate} and {limit}.")
    limits = (_share(confidence, "confidence"), _share(iou, "iou"), limit)
    if video:
        photos = frames(Path(video), rate)
    else:
        assert image is not None
        photos = [read_photo(image)]
    people, count = [], 0
    for index, (photo, found) in enumerate(detect(program, photos, *limits)):
        caption = caption_of(program.manifest, f"{len(found)} people", "they mean nothing")
        if overlay:
            write_png(
                draw_people(photo, found, program.manifest.prepare, caption), _place(overlay, index, video)
            )
        people += [{"frame": index, **_facts(person, program.manifest.prepare)} for person in found]
        count += 1
    result = {
        "image": image,
        "video": video,
        "frames": count,
        "people": people,
        "overlay": overlay,
        "caption": caption,
        "save": save,
    }
    if save:
        with foreign_errors(save):
            Path(save).parent.mkdir(parents=True, exist_ok=True)
            Path(save).write_text(json.dumps(result, indent=2), encoding="utf-8")
    return result


def _share(value: str | float, name: str) -> float:
    try:
        share = float(value)
    except ValueError:
        share = -1.0
    if not 0.0 <= share <= 1.0:
        raise InputError(f"--{name} is a number from 0 to 1, for example 0.5, not '{value}'.")
    return share


def _place(overlay: str, index: int, video: str | None) -> Path:
    """The file of an overlay; of a video each frame has its own, in a folder."""
    return Path(overlay) / f"{index:05}.png" if video else Path(overlay)


@dataclass(frozen=True)
class Person:
    """What was found of a person, in pixels of the photo: box [4] (left, top, right, bottom),
    keypoints [K,2] (x, y), visibility [K].
    """

    score: float
    box: Any
    keypoints: Any
    visibility: Any


def detect(
    program, photos: Iterable, confidence: float, iou: float, limit: int
) -> Iterator[tuple[Any, list[Person]]]:
    """Each photo (PIL, RGB) with its people, best first; as many photos at once as the program
    takes.
    """
    import torch

    facts = program.manifest.prepare
    method = program["detect"]
    photos = iter(photos)
    while chunk := list(itertools.islice(photos, method.dims["batch"].max)):
        fits = [Fit.of(photo.size, facts["image_size"]) for photo in chunk]
        images = [fit.letterbox(photo, facts["padding"]) for fit, photo in zip(fits, chunk)]
        missing = max(0, method.dims["batch"].min - len(chunk))
        answers = method(torch.stack(images + images[-1:] * missing))
        for index, (photo, fit) in enumerate(zip(chunk, fits)):
            yield photo, people_of([a[index].numpy() for a in answers], fit, confidence, iou, limit)


@dataclass(frozen=True)
class Fit:
    """How a photo of `size` (width, height) lies in the square: scaled to `scaled` (width, height),
    its corner at `corner` (x, y).
    """

    size: tuple[int, int]
    scaled: tuple[int, int]
    corner: tuple[int, int]
    side: int

    @classmethod
    def of(cls, size: tuple[int, int], side: int) -> Fit:
        """The largest that fits with the aspect ratio kept, centred; rounded as Ultralytics does,
        and nowhere below one pixel.
        """
        ratio = min(side / size[0], side / size[1])
        width, height = (max(round(length * ratio), 1) for length in size)
        left, top = (round((side - length) / 2 - 0.1) for length in (width, height))
        return cls((size[0], size[1]), (width, height), (left, top), side)

    def letterbox(self, photo, padding: int):
        """The photo in the square, on grey of this value: float32 [3,side,side] in 0..1,
        contiguous.

        Bilinear without antialiasing, which the model was trained with; not by PIL, which cuts
        fractions off and makes every photo darker by a third of a level.
        """
        import numpy as np
        import torch
        import torch.nn.functional as F

        pixels = torch.from_numpy(np.array(photo)).permute(2, 0, 1)[None]
        (left, top), (width, height) = self.corner, self.scaled
        square = torch.full((3, self.side, self.side), padding, dtype=torch.uint8)
        square[:, top : top + height, left : left + width] = F.interpolate(
            pixels, (height, width), mode="bilinear"
        )[0]
        return square / 255.0

    def back(self, points):
        """Points [..., 2] (x, y) of the square in pixels of the photo, none outside it."""
        import numpy as np

        scale = np.array(self.scaled, dtype=np.float32) / np.array(self.size, dtype=np.float32)
        return np.clip(
            (points - np.array(self.corner, dtype=np.float32)) / scale,
            0.0,
            np.array(self.size, dtype=np.float32),
        )


def people_of(answers, fit: Fit, confidence: float, iou: float, limit: int) -> list[Person]:
    """One image's boxes [A,4], scores [A], keypoints [A,K,2], visibility [A,K] → the people, best
    first.
    """
    import numpy as np

    boxes, scores, keypoints, visibility = answers
    likely = np.flatnonzero(scores > confidence)
    kept = likely[suppress(boxes[likely], scores[likely], iou, limit)]
    return [
        Person(
            float(scores[i]),
            fit.back(boxes[i].reshape(2, 2)).reshape(4),
            fit.back(keypoints[i]),
            visibility[i],
        )
        for i in kept
    ]


def suppress(boxes, scores, iou: float, limit: int):
    """Greedy non-maximum suppression: indices of up to `limit` boxes, best first, none overlapping
    a better one by more than `iou`.
    """
    import numpy as np

    order = np.argsort(-scores, kind="stable")
    areas = np.prod(boxes[:, 2:] - boxes[:, :2], axis=1)
    kept = []
    while order.size and len(kept) < limit:
        best, order = order[0], order[1:]
        kept.append(best)
        low, high = (
            np.maximum(boxes[best, :2], boxes[order, :2]),
            np.minimum(boxes[best, 2:], boxes[order, 2:]),
        )
        shared = np.prod(np.clip(high - low, 0.0, None), axis=1)
        order = order[shared <= iou * (areas[best] + areas[order] - shared)]
    return np.array(kept, dtype=np.int64)


def _facts(person: Person, prepare: dict) -> dict[str, Any]:
    """A person as JSON-able facts, to a thousandth of a pixel."""
    points = zip(prepare["keypoints"], person.keypoints.tolist(), person.visibility.tolist())
    return {
        "score": round(person.score, 6),
        "box": [round(v, 3) for v in person.box.tolist()],
        "keypoints": {
            name: [round(x, 3), round(y, 3), round(visible, 4)] for name, (x, y), visible in points
        },
    }


def draw_people(photo, people: list[Person], prepare: dict, caption: str):
    """The photo with each person's box, score, skeleton and keypoints, left green and right orange,
    and a caption below.
    """
    from PIL import ImageDraw, ImageFont

    drawn = with_caption(photo, caption)
    draw, size = ImageDraw.Draw(drawn), text_size(photo)
    font, width = ImageFont.load_default(size), max(2, size // 8)
    colours = [
        {"left": "lime", "right": "orange"}.get(name.split()[0], "white") for name in prepare["keypoints"]
    ]
    for person in reversed(people):  # the best on top
        points = [tuple(p) for p in person.keypoints.tolist()]
        seen = person.visibility > DRAWN_VISIBILITY
        draw.rectangle(person.box.tolist(), outline="deepskyblue", width=width)
        draw.text(
            (person.box[0] + width, person.box[1]), f"{person.score:.2f}", fill="deepskyblue", font=font
        )
        for start, end in prepare["skeleton"]:
            if seen[start] and seen[end]:
                draw.line(
                    [points[start], points[end]],
                    fill=colours[end] if colours[start] == colours[end] else "white",
                    width=width,
                )
        for (x, y), visible, colour in zip(points, seen, colours):
            if visible:
                draw.ellipse([x - width, y - width, x + width, y + width], fill=colour)
    return drawn


PIPELINE = Pipeline(OPTIONS, run, "--image photo.jpg --overlay people.png")
