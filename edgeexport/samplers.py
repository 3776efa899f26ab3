"""Where check inputs come from: samplers that are data.

A sampler is recorded in the manifest with each input, so that an artifact can
be checked later from its own files: the same kind, shape and seed give the
same tensor. The manifest also keeps a digest of what was drawn, so that a
changed generator is noticed rather than blamed on the program.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

if TYPE_CHECKING:
    import torch
    from PIL import Image

PHOTOS = ("coffee.png", "chelsea.png", "astronaut.png", "rocket.jpg")
"""Photographs that scikit-image ships."""


class Answers(Protocol):
    """What methods answered, by `method/case/output`."""

    def __getitem__(self, key: str, /) -> torch.Tensor: ...


@dataclass(frozen=True)
class Photo:
    """Crops of photographs, normalised per channel: [B,3,H,W], or clips [B,3,T,H,W] that pan over
    one.

    `mean` and `std` are those of the model's pre-processing, for pixels in 0..1.
    """

    kind: ClassVar[str] = "photo"
    mean: tuple[float, ...] = (0.485, 0.456, 0.406)
    std: tuple[float, ...] = (0.229, 0.224, 0.225)

    def draw(self, shape, dtype, seed, outputs, sizes) -> torch.Tensor:
        import torch

        frames = shape[2] if len(shape) == 5 else 1
        height, width = shape[-2:]
        items = [self._item(index + seed, frames, height, width) for index in range(shape[0])]
        pixels = torch.stack(items)  # [B,3,T,H,W]
        stats = [torch.tensor(s).reshape(1, -1, 1, 1, 1) for s in (self.mean, self.std)]
        drawn = (pixels - stats[0]) / stats[1]
        return drawn.reshape(shape).to(dtype).contiguous()

    @staticmethod
    def _item(index: int, frames: int, height: int, width: int) -> torch.Tensor:
        """One clip [3,T,H,W] in 0..1: a window that moves over a photo, mirrored on odd rounds."""
        import numpy as np
        import torch
        from PIL import Image

        array = np.asarray(_photo(PHOTOS[index % len(PHOTOS)]))
        if (index // len(PHOTOS)) % 2:
            array = array[:, ::-1]
        canvas = Image.fromarray(np.ascontiguousarray(array)).resize(
            (width + 2 * frames, height + 2 * frames), Image.Resampling.BILINEAR
        )
        pixels = torch.from_numpy(np.array(canvas)).permute(2, 0, 1).float() / 255.0
        offset = index % 3
        windows = [
            pixels[:, (step + offset) : (step + offset) + height, 2 * step : 2 * step + width]
            for step in range(frames)
        ]
        return torch.stack(windows, dim=1)


@dataclass(frozen=True)
class Uniform:
    """Independent values, uniform in [low, high)."""

    kind: ClassVar[str] = "uniform"
    low: float = 0.0
    high: float = 1.0

    def draw(self, shape, dtype, seed, outputs, sizes) -> torch.Tensor:
        import torch

        drawn = torch.rand(shape, generator=_generator(seed))
        return (drawn * (self.high - self.low) + self.low).to(dtype)


@dataclass(frozen=True)
class Normal:
    """Independent values, normal with mean 0 and the given deviation."""

    kind: ClassVar[str] = "normal"
    std: float = 1.0

    def draw(self, shape, dtype, seed, outputs, sizes) -> torch.Tensor:
        import torch

        return (torch.randn(shape, generator=_generator(seed)) * self.std).to(dtype)


@dataclass(frozen=True)
class Choice:
    """Independent values out of a fixed set: labels, flags, token ids."""

    kind: ClassVar[str] = "choice"
    values: tuple[float, ...] = (0, 1)

    def draw(self, shape, dtype, seed, outputs, sizes) -> torch.Tensor:
        import torch

        drawn = torch.randint(len(self.values), shape, generator=_generator(seed))
        return torch.tensor(self.values)[drawn].to(dtype)


@dataclass(frozen=True)
class Tokens:
    """Independent token ids, uniform in [low, high), as a tokenizer could give them."""

    kind: ClassVar[str] = "tokens"
    low: int = 0
    high: int = 1

    def draw(self, shape, dtype, seed, outputs, sizes) -> torch.Tensor:
        import torch

        return torch.randint(self.low, self.high, shape, generator=_generator(seed)).to(dtype)


@dataclass(frozen=True)
class SizeOf:
    """The size of a dimension of the case as a value: the position of a decoding step, say."""

    kind: ClassVar[str] = "size_of"
    dim: str = ""

    def draw(self, shape, dtype, seed, outputs, sizes) -> torch.Tensor:
        import torch

        return torch.full(shape, sizes[self.dim], dtype=dtype)


@dataclass(frozen=True)
class Chirp:
    """Sound with the spectrum of no one in particular: three tones that glide and swell, and a
    little noise; in -1..1.
    """

    kind: ClassVar[str] = "chirp"
    sampling_rate_hz: int = 16_000

    def draw(self, shape, dtype, seed, outputs, sizes) -> torch.Tensor:
        import torch

        generator = _generator(seed)
        time_s = torch.arange(shape[-1], dtype=torch.float64) / self.sampling_rate_hz
        low_hz, swell_hz, phase = 100 + 900 * torch.rand(3, 3, 1, generator=generator, dtype=torch.float64)
        tones = torch.sin(6.2832 * (low_hz + 40 * time_s) * time_s + phase) * (
            0.5 + 0.5 * torch.sin(swell_hz / 200 * time_s)
        )
        noise = torch.randn(shape, generator=generator, dtype=torch.float64)
        return (0.25 * tones.sum(0).expand(shape) + 0.01 * noise).to(dtype).contiguous()


@dataclass(frozen=True)
class OutputOf:
    """What another method of the program answered to its own check input: of its `first` case, the
    smallest, or its `last`.

    Where this input's batch is larger than that answer's, the answer is repeated; where it is
    smaller, cut.
    """

    kind: ClassVar[str] = "output_of"
    method: str = ""
    output: str = ""
    case: str = "first"

    def draw(self, shape, dtype, seed, outputs, sizes) -> torch.Tensor:
        answer = outputs[f"{self.method}/{self.case}/{self.output}"]
        repeats = [-(-wanted // have) for wanted, have in zip(shape, answer.shape)]
        cut = tuple(slice(wanted) for wanted in shape)
        return answer.repeat(repeats)[cut].to(dtype).contiguous()


Sampler = Photo | Uniform | Normal | Choice | Tokens | SizeOf | Chirp | OutputOf
SAMPLERS = {cls.kind: cls for cls in (Photo, Uniform, Normal, Choice, Tokens, SizeOf, Chirp, OutputOf)}


def sampler_to_json(sampler: Sampler) -> dict:
    """The sampler as manifest data."""
    return {"kind": sampler.kind, **dataclasses.asdict(sampler)}


def sampler_from_json(data: Mapping) -> Sampler:
    """The sampler that `sampler_to_json` wrote."""
    fields: dict[str, Any] = {
        key: tuple(value) if isinstance(value, list) else value
        for key, value in data.items()
        if key != "kind"
    }
    return SAMPLERS[data["kind"]](**fields)


def digest(tensors) -> str:
    """sha256 over the dtypes, shapes and bytes of `tensors`, in order."""
    state = hashlib.sha256()
    for tensor in tensors:
        state.update(f"{tensor.dtype}{tuple(tensor.shape)}".encode())
        state.update(tensor.detach().contiguous().numpy().tobytes())
    return state.hexdigest()


def _photo(name: str) -> Image.Image:
    """One of PHOTOS, read as a file: to import scikit-image takes half a second."""
    from importlib.util import find_spec

    from PIL import Image

    package = find_spec("skimage")
    if package is None or package.origin is None:
        raise ModuleNotFoundError("No module named 'skimage'", name="skimage")
    return Image.open(Path(package.origin).parent / "data" / name).convert("RGB")


def _generator(seed: int) -> torch.Generator:
    import torch

    return torch.Generator().manual_seed(seed)
