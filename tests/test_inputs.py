"""Samplers: repeatable, of the declared kind, the same after a trip through the manifest."""

import pytest
import torch

from edgeexport.samplers import (
    Chirp,
    Choice,
    Normal,
    OutputOf,
    Photo,
    SizeOf,
    Tokens,
    Uniform,
    digest,
    sampler_from_json,
    sampler_to_json,
)

SAMPLERS = [
    Photo(),
    Photo((0.45,) * 3, (0.225,) * 3),
    Uniform(-2.0, 5.0),
    Normal(3.0),
    Choice((-1, 0, 2)),
    Tokens(0, 9),
    SizeOf("position"),
    Chirp(),
    OutputOf("encode", "x"),
]


@pytest.mark.parametrize("sampler", SAMPLERS, ids=lambda s: s.kind)
def test_samplers_survive_the_manifest_and_repeat(sampler):
    import json

    again = sampler_from_json(json.loads(json.dumps(sampler_to_json(sampler))))
    assert again == sampler
    answers = {"encode/first/x": torch.randn(1, 3, 8, 8)}
    first, second = (
        s.draw((2, 3, 8, 8), torch.float32, 5, answers, {"position": 3}) for s in (sampler, again)
    )
    assert torch.equal(first, second) and first.shape == (2, 3, 8, 8) and first.is_contiguous()
    assert digest([first]) == digest([second]) != digest([first + 1])


def test_photos_are_natural_images_and_clips_move():
    image = Photo().draw((1, 3, 64, 64), torch.float32, 0, {}, {})
    neighbours = (image[..., 1:] - image[..., :-1]).abs().mean()
    assert neighbours < 0.3 * image.std(), "neighbouring pixels of a photograph are alike"
    clip = Photo().draw((1, 3, 4, 64, 64), torch.float32, 0, {}, {})
    assert not torch.equal(clip[:, :, 0], clip[:, :, 3])


def test_values_are_in_range():
    assert set(Choice((0, 2)).draw((50,), torch.int32, 0, {}, {}).tolist()) == {0, 2}
    drawn = Uniform(-2.0, 5.0).draw((1000,), torch.float32, 0, {}, {})
    assert -2.0 <= drawn.min() and drawn.max() < 5.0


def test_answers_of_another_method_are_repeated_or_cut_to_the_batch():
    answers = {"encode/last/x": torch.arange(4.0).reshape(2, 2)}
    sampler = OutputOf("encode", "x", "last")
    assert sampler.draw((3, 2), torch.float32, 0, answers, {}).tolist() == [[0, 1], [2, 3], [0, 1]]
    assert sampler.draw((1, 2), torch.float32, 0, answers, {}).tolist() == [[0, 1]]


def test_sound_has_tones_and_stays_in_range():
    sound = Chirp().draw((16_000,), torch.float32, 0, {}, {})
    spectrum = torch.fft.rfft(sound).abs()
    assert sound.abs().max() <= 1.0 and spectrum.max() > 50 * spectrum.median()
