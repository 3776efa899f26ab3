"""Promptable segmentation as a pipeline: a photo and clicks to a mask in the photo's size."""

from __future__ import annotations

from typing import Any

from edgeexport.errors import InputError
from edgeexport.method import Option, Pipeline
from edgeexport.pipelines.media.photos import caption_of, draw_overlay, read_photo, to_tensor, write_png

OPTIONS = (
    Option("image", "photo to segment (JPEG, PNG, ...)", "file", required=True, sample="photo"),
    Option(
        "point", "click X,Y in pixels of the photo; X,Y,0 marks background", multiple=True, sample="320,240"
    ),
    Option("box", "box X0,Y0,X1,Y1 in pixels of the photo", multiple=True),
    Option(
        "masks",
        "multi: the best of three; single: one; auto: multi for one click, else single",
        default="auto",
    ),
    Option("mask", "write the mask, as PNG in the photo's size", "output", sample="compared"),
    Option("overlay", "write the photo with the mask on it, as PNG", "output"),
)

# From the SAM 2.1 configurations: a single mask whose area changes by more than this with the
# threshold is not trusted.
_STABILITY_DELTA, _STABILITY_LEAST = 0.05, 0.98


def run(
    program,
    image: str,
    point=(),
    box=(),
    masks: str = "auto",
    mask: str | None = None,
    overlay: str | None = None,
) -> dict[str, Any]:
    """Segment what the clicks show.

    Returns score, area and the files written. Raises InputError.
    """
    import numpy as np
    from PIL import Image

    if masks not in ("auto", "multi", "single"):
        raise InputError(f"--masks is auto, multi or single, not '{masks}'.")
    photo = read_photo(image)
    points, labels = prompts(point, box, photo.size)
    logits, score, object_score = segment(program, photo, points, labels, masks)
    found = logits > 0
    caption = caption_of(program.manifest, f"IoU score {score:.2f}", "the mask means nothing")
    if mask:
        write_png(Image.fromarray(found.astype(np.uint8) * 255), mask)
    if overlay:
        write_png(draw_overlay(photo, found, points, labels, caption), overlay)
    return {
        "image": image,
        "width": photo.width,
        "height": photo.height,
        "iou_score": score,
        "object_score": object_score,
        "mask_pixels": int(found.sum()),
        "mask_share": float(found.mean()),
        "mask": mask,
        "overlay": overlay,
        "caption": caption,
    }


def prompts(point, box, size: tuple[int, int]) -> tuple[list[tuple[float, float]], list[int]]:
    """Clicks and boxes as points with labels.

    Raises InputError for what is not one, or lies outside the photo.
    """
    points, labels = [], []
    for text in box:
        x0, y0, x1, y1 = _numbers(text, (4,), "box", "X0,Y0,X1,Y1")
        if x0 >= x1 or y0 >= y1:
            raise InputError(f"The box {text} is empty: X0 < X1 and Y0 < Y1 are needed.")
        points += [(x0, y0), (x1, y1)]
        labels += [2, 3]
    for text in point:
        x, y, *label = _numbers(text, (2, 3), "point", "X,Y or X,Y,LABEL")
        if label and label[0] not in (0, 1):
            raise InputError(f"The label of the point {text} is 1 for the object or 0 for the background.")
        points.append((x, y))
        labels.append(int(label[0]) if label else 1)
    for x, y in points:
        if not (0 <= x <= size[0] and 0 <= y <= size[1]):
            raise InputError(f"({x:g}, {y:g}) lies outside the photo of {size[0]} x {size[1]} pixels.")
    if not points:
        raise InputError("What should be segmented? Give at least one --point X,Y or --box X0,Y0,X1,Y1.")
    return points, labels


def _numbers(text: str, counts: tuple[int, ...], what: str, form: str) -> list[float]:
    try:
        numbers = [float(part) for part in text.split(",")]
    except ValueError:
        numbers = []
    if len(numbers) not in counts:
        raise InputError(
            f"'{text}' is not a {what}: write {form}, for example"
            f" {'320,240' if what == 'point' else '10,20,300,400'}."
        )
    return numbers


def segment(program, photo, points, labels, masks: str):
    """(mask logits [H,W] as numpy in the photo's size, its predicted IoU, the object score)."""
    import torch
    import torch.nn.functional as F

    facts = program.manifest.prepare
    size = facts["image_size"]
    features = program["encode_image"](to_tensor(photo, size, size, facts["mean"], facts["std"]))
    scale = torch.tensor([size / photo.width, size / photo.height])
    logits, scores, object_score = program["decode_masks"](
        *features,
        torch.tensor([points], dtype=torch.float32) * scale,
        torch.tensor([labels], dtype=torch.int32),
        torch.zeros(1, 1, 256, 256),
        torch.zeros(1),
    )
    multi = masks == "multi" or (masks == "auto" and len(points) == 1)
    index = choose(logits[0], scores[0], multi)
    full = F.interpolate(
        logits[:, index : index + 1], (photo.height, photo.width), mode="bilinear", align_corners=False
    )
    return full[0, 0].numpy(), float(scores[0, index]), float(object_score[0, 0])


def choose(logits, scores, multi: bool) -> int:
    """Which of the four masks [4,h,w] to show: the best of the last three, or the first if it is
    stable.

    As transformers' Sam2MaskDecoder does for multimask_output true and false.
    """
    best = 1 + int(scores[1:].argmax())
    if multi:
        return best
    inner, outer = ((logits[0] > d).sum().item() for d in (_STABILITY_DELTA, -_STABILITY_DELTA))
    stability = inner / outer if outer else 1.0
    return 0 if stability >= _STABILITY_LEAST else best


PIPELINE = Pipeline(OPTIONS, run, "--image photo.jpg --point 320,240 --overlay mask.png")
