"""What pipelines are run on where nobody gave anything: a made photo, sound or film, the same every
time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edgeexport.method import Option, Pipeline


@dataclass(frozen=True)
class Sizes:
    """How large samples are: width and height of photos and frames in pixels, the number of frames,
    the length of a sound.
    """

    photo: tuple[int, int] = (640, 480)
    frame: tuple[int, int] = (320, 256)
    frames: int = 32
    sound_s: float = 5.0


def options_of(
    pipeline: Pipeline, folder: Path, given: Mapping[str, Any], sizes: Sizes = Sizes()
) -> tuple[dict[str, Any], dict[str, Path]]:
    """The options to run a pipeline with: what is `given` by option name, else samples, made in
    `folder`, else defaults.

    Returns them with the files that the pipeline will write, by the option's name.
    """
    options: dict[str, Any] = {}
    written: dict[str, Path] = {}
    for option in pipeline.options:
        name = option.name.replace("-", "_")
        if option.kind == "output":
            if option.sample is None:
                continue
            written[name] = folder / f"{name}.out"
            options[name] = str(written[name])
        elif option.name in given:
            options[name] = given[option.name]
        elif option.sample is not None:
            options[name] = _sample(option, folder, sizes)
        elif option.default is not None:
            options[name] = option.default
    return options, written


def _sample(option: Option, folder: Path, sizes: Sizes) -> Any:
    """A made photo, sound or film; other samples are values."""
    makers = {"photo": _photo, "sound": _sound, "frames": _frames}
    value = makers[option.sample](folder, sizes) if option.sample in makers else option.sample
    return (value,) if option.multiple else value


def _photo(folder: Path, sizes: Sizes) -> str:
    """A photograph of a person."""
    path = folder / "photo.png"
    _save(_pixels(*sizes.photo), path)
    return str(path)


def _frames(folder: Path, sizes: Sizes) -> str:
    """A photograph that is panned over, a pixel a frame."""
    width, height = sizes.frame
    wide = _pixels(width + sizes.frames, height)
    frames = folder / "frames"
    frames.mkdir()
    for index in range(sizes.frames):
        _save(wide[:, :, index : index + width], frames / f"{index:03}.png")
    return str(frames)


def _pixels(width: int, height: int):
    """A photograph as [3,height,width] in 0..1."""
    import torch

    from edgeexport.samplers import Photo

    return Photo((0.0,) * 3, (1.0,) * 3).draw((1, 3, height, width), torch.float32, 2, {}, {})[0]


def _save(pixels, path: Path) -> None:
    from PIL import Image

    Image.fromarray((pixels * 255).byte().permute(1, 2, 0).contiguous().numpy()).save(path)


def _sound(folder: Path, sizes: Sizes) -> str:
    """Gliding tones, as a WAV file of 16 bits."""
    import wave

    import torch

    from edgeexport.samplers import Chirp

    rate_hz = 16_000
    samples = Chirp(rate_hz).draw((round(sizes.sound_s * rate_hz),), torch.float32, 5, {}, {})
    path = folder / "sound.wav"
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(rate_hz)
        file.writeframes((samples.clamp(-1, 1) * 32767).short().numpy().tobytes())
    return str(path)
