"""Photos in, masks and overlays out, for every model that takes images."""

from __future__ import annotations

from pathlib import Path

from edgeexport.errors import InputError, foreign_errors

FRAME_LIMIT_PIXELS = 500_000_000
"""A larger image is refused: decoded it would take more than 1.5 GB."""


def read_photo(path: str | Path):
    """A photo as a PIL image in RGB, upright as its EXIF says.

    Raises InputError for what is not an image.
    """
    from PIL import Image, ImageOps

    path = Path(path)
    if not path.is_file():
        raise InputError(f"There is no image file at {path}.")
    Image.MAX_IMAGE_PIXELS = FRAME_LIMIT_PIXELS
    try:
        with Image.open(path) as image:
            return ImageOps.exif_transpose(image).convert("RGB")
    except Image.DecompressionBombError as error:
        raise InputError(f"{path} is too large ({error}). Scale it down first.") from error
    except (
        OSError,
        SyntaxError,
        ValueError,
        ModuleNotFoundError,
    ) as error:  # the last from Ultralytics, which patches Image.open
        raise InputError(f"{path} is not an image that can be read ({error}).") from error


def to_tensor(image, width: int, height: int, mean, std, resample=None):
    """A PIL image, resized (bilinear, or by `resample` of PIL; antialiased) and normalised: float32
    [1,3,height,width], contiguous.
    """
    import numpy as np
    import torch
    from PIL import Image

    resized = image.resize((width, height), Image.Resampling.BILINEAR if resample is None else resample)
    pixels = np.asarray(resized, dtype=np.float32) / 255.0
    normalised = (pixels - np.asarray(mean, dtype=np.float32)) / np.asarray(std, dtype=np.float32)
    return torch.from_numpy(normalised).permute(2, 0, 1)[None].contiguous()


def write_png(image, path: str | Path) -> None:
    """Write a PIL image as PNG. Raises ArtifactError where that is not possible."""
    path = Path(path)
    with foreign_errors(str(path)):
        path.parent.mkdir(parents=True, exist_ok=True)
        image.save(path, format="PNG")


def caption_of(manifest, said: str, random: str) -> str:
    """What stands below an overlay: what made it, what it says, and the weights; `random` is what
    random ones make of it.
    """
    weights = manifest.weights
    source = f"RANDOM weights, seed {weights.seed}: {random}" if weights.random else weights.origin
    return f"{manifest.model.name} {manifest.target} {manifest.precision}, {said} ({source})"


def with_caption(image, caption: str):
    """The image with a black bar below it that holds the caption."""
    from PIL import Image, ImageDraw, ImageFont

    size = text_size(image)
    canvas = Image.new("RGB", (image.width, image.height + 2 * size), "black")
    canvas.paste(image, (0, 0))
    ImageDraw.Draw(canvas).text(
        (size // 2, image.height + size // 3), caption, fill="white", font=ImageFont.load_default(size)
    )
    return canvas


def text_size(image) -> int:
    """Height in pixels of text that can be read in an image of this width."""
    return max(12, image.width // 45)


def draw_overlay(photo, mask, points, labels, caption: str):
    """The photo with a mask [H,W] of bool tinted and outlined, prompts drawn, and a caption
    below.
    """
    import numpy as np
    from PIL import Image, ImageDraw

    pixels = np.asarray(photo).astype(np.float32)
    tint = np.array([30.0, 144.0, 255.0], dtype=np.float32)
    pixels[mask] = 0.45 * pixels[mask] + 0.55 * tint
    inner = mask.copy()
    inner[1:-1, 1:-1] = mask[1:-1, 1:-1] & mask[:-2, 1:-1] & mask[2:, 1:-1] & mask[1:-1, :-2] & mask[1:-1, 2:]
    pixels[mask & ~inner] = 255.0
    size = text_size(photo)
    overlay = Image.fromarray(pixels.astype(np.uint8))
    draw = ImageDraw.Draw(overlay)
    corners = [p for p, label in zip(points, labels) if label in (2, 3)]
    for start, end in zip(corners[::2], corners[1::2]):
        draw.rectangle([*start, *end], outline="yellow", width=max(2, size // 8))
    for (x, y), label in zip(points, labels):
        if label in (0, 1):
            radius = size // 2
            colour = "lime" if label == 1 else "red"
            draw.ellipse(
                [x - radius, y - radius, x + radius, y + radius], fill=colour, outline="white", width=2
            )
    return with_caption(overlay, caption)
