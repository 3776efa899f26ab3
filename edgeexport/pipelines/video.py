"""Video classification as a pipeline: a video file or a folder of frames to the best classes, at
most five, by name.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from edgeexport.errors import InputError, UsageError
from edgeexport.method import Option, Pipeline
from edgeexport.pipelines.media.photos import read_photo, to_tensor

OPTIONS = (
    Option(
        "video",
        "video file (needs the extra [video]), or a folder of frames in the order of their names",
        "file",
        required=True,
        sample="frames",
    ),
    Option(
        "clips", "clips taken evenly over the video; their probabilities are averaged", "number", default=3
    ),
)

_FRAME_SUFFIXES = {".png", ".jpg", ".jpeg", ".bmp", ".webp"}


def run(program, video: str, clips: int = 3) -> dict[str, Any]:
    """Classify a video.

    Returns the best classes, at most five, with their probabilities. Raises InputError.
    """
    import torch

    if clips < 1:
        raise InputError(f"--clips must be at least 1, not {clips}.")
    facts = program.manifest.prepare
    frames = read_frames(Path(video), facts["frames_per_second"])
    starts = clip_starts(len(frames), facts["frames"], clips)
    batch = torch.cat([clip_tensor(frames, start, facts) for start in starts])
    method = program["classify"]
    parts = batch.split(method.dims["batch"].max)
    probabilities = torch.cat([method(part.contiguous())[0] for part in parts]).softmax(-1).mean(0)
    best = probabilities.topk(min(5, len(probabilities)))
    top5 = [
        {"label": facts["labels"][index], "probability": value}
        for value, index in zip(best.values.tolist(), best.indices.tolist())
    ]
    return {"video": video, "frames": len(frames), "clips": len(starts), "top5": top5}


def read_frames(path: Path, frames_per_second: float) -> list:
    """All frames of `frames`, for what must see the whole video."""
    return list(frames(path, frames_per_second))


def frames(path: Path, frames_per_second: float) -> Iterator:
    """PIL frames: of a folder as they are, of a video at the given rate.

    Raises InputError, or UsageError without the extra.
    """
    if path.is_dir():
        files = sorted(f for f in path.iterdir() if f.suffix.lower() in _FRAME_SUFFIXES)
        if not files:
            raise InputError(f"{path} holds no frames ({', '.join(sorted(_FRAME_SUFFIXES))}).")
        return map(read_photo, files)
    if not path.is_file():
        raise InputError(f"There is no video file or folder of frames at {path}.")
    return _decode(path, frames_per_second)


def _decode(path: Path, frames_per_second: float) -> Iterator:
    try:
        import av.error
    except ImportError as error:
        raise UsageError(
            "Reading video files needs PyAV: pip install 'edgeexport[video]'. A folder of frames needs"
            " nothing."
        ) from error
    count = 0
    try:
        with av.open(str(path)) as container:
            if not container.streams.video:
                raise InputError(f"{path} has no video in it.")
            for frame in container.decode(video=0):
                # Repeat or drop frames so that they stand at the rate the model was trained with.
                while frame.time is None or count <= frame.time * frames_per_second:
                    count += 1
                    yield frame.to_image()
                    if frame.time is None:
                        break
    except (av.error.FFmpegError, OSError, ValueError) as error:
        raise InputError(f"{path} is not a video that can be read ({error}).") from error
    if not count:
        raise InputError(f"{path} has no frames.")


def clip_starts(count: int, length: int, clips: int) -> list[int]:
    """First frames of up to `clips` clips of `length`, even over `count` frames; one clip when the
    video is short.
    """
    last = count - length
    if last <= 0:
        return [0]
    clips = min(clips, last + 1)
    return [round(i * last / max(1, clips - 1)) for i in range(clips)] if clips > 1 else [last // 2]


def clip_tensor(frames: list, start: int, facts: dict):
    """[1,3,T,crop,crop] from T frames on; a short video is stretched by repeating frames evenly."""
    import torch

    length = facts["frames"]
    if len(frames) < length:
        chosen = [frames[int(i * len(frames) / length)] for i in range(length)]
    else:
        chosen = frames[start : start + length]
    return torch.stack([_crop(frame, facts)[0] for frame in chosen], dim=1)[None].contiguous()


def _crop(frame, facts: dict):
    """Short side to `resize_short_side`, centre `crop` x `crop`, normalised: [1,3,crop,crop]."""
    short, crop = facts["resize_short_side"], facts["crop"]
    scale = short / min(frame.size)
    width, height = (max(crop, round(side * scale)) for side in frame.size)
    pixels = to_tensor(frame, width, height, facts["mean"], facts["std"])
    top, left = (height - crop) // 2, (width - crop) // 2
    return pixels[:, :, top : top + crop, left : left + crop]


PIPELINE = Pipeline(OPTIONS, run, "--video clip.mp4")
