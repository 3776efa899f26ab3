"""Sound of every rate, length and number of channels; what is not sound is refused."""

import sys

import numpy as np
import pytest
import soundfile

from edgeexport.errors import InputError, UsageError
from edgeexport.pipelines.media.sounds import read_sound


def tone(seconds, rate, hertz=440.0):
    return 0.5 * np.sin(2 * np.pi * hertz * np.arange(int(seconds * rate)) / rate).astype(np.float32)


def saved(tmp_path, samples, rate, name="a.wav", **options):
    soundfile.write(tmp_path / name, samples, rate, **options)
    return tmp_path / name


@pytest.mark.parametrize("rate", [8_000, 16_000, 22_050, 44_100, 48_000, 96_000])
def test_every_rate_becomes_16_khz_with_the_same_tone(tmp_path, rate):
    sound = read_sound(saved(tmp_path, tone(1.5, rate), rate), 16_000)
    assert sound.dtype == np.float32 and abs(len(sound) - 24_000) <= 2
    spectrum = np.abs(np.fft.rfft(sound[:16_000] * np.hanning(16_000)))
    assert spectrum.argmax() == 440
    assert abs(np.abs(sound[2_000:-2_000]).max() - 0.5) < 0.02


def test_stereo_is_the_mean_of_both_channels(tmp_path):
    left, right = tone(1, 16_000, 300), tone(1, 16_000, 700)
    sound = read_sound(saved(tmp_path, np.stack([left, right], 1), 16_000, subtype="FLOAT"), 16_000)
    np.testing.assert_allclose(sound, (left + right) / 2, atol=1e-6)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("a.flac", {}),
        ("a.ogg", {}),
        ("a.mp3", {}),
        ("b.wav", {"subtype": "PCM_24"}),
        ("c.wav", {"subtype": "PCM_U8"}),
    ],
)
def test_other_formats(tmp_path, name, options):
    sound = read_sound(saved(tmp_path, tone(1, 16_000), 16_000, name, **options), 16_000)
    assert len(sound) >= 16_000 and np.abs(np.fft.rfft(sound[:16_000])).argmax() == 440


def test_blocks_are_joined_without_a_seam(tmp_path):
    samples = tone(65, 8_000)
    sound = read_sound(saved(tmp_path, samples, 8_000, subtype="FLOAT"), 16_000)
    ideal = tone(65, 16_000)
    assert (
        abs(len(sound) - len(ideal)) <= 2
        and np.abs(sound[100 : 16_000 * 64] - ideal[100 : 16_000 * 64]).max() < 1e-3
    )


def test_what_is_not_sound_is_refused(tmp_path):
    (tmp_path / "text.wav").write_text("not sound at all")
    (tmp_path / "cut.wav").write_bytes(
        saved(tmp_path, tone(1, 16_000), 16_000, "whole.wav").read_bytes()[:30]
    )
    with pytest.raises(InputError, match="no sound file"):
        read_sound(tmp_path / "none.wav", 16_000)
    for name in ("text.wav", "cut.wav"):
        with pytest.raises(InputError, match="not a sound file that can be read"):
            read_sound(tmp_path / name, 16_000)
    with pytest.raises(InputError, match="0 samples"):
        read_sound(saved(tmp_path, np.zeros(0, np.float32), 16_000, "empty.wav"), 16_000)
    with pytest.raises(InputError, match="not numbers"):
        read_sound(
            saved(tmp_path, np.array([0.0, np.nan], np.float32), 16_000, "nan.wav", subtype="FLOAT"), 16_000
        )


def test_a_missing_package_is_named_with_its_extra(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "soxr", None)
    with pytest.raises(UsageError, match=r"soxr.*pip install 'edgeexport\[audio\]'"):
        read_sound(tmp_path / "a.wav", 16_000)
