"""Sound files in, for every model that listens."""

from __future__ import annotations

from pathlib import Path

from edgeexport.errors import InputError, UsageError

_BLOCK_SECONDS = 30


def read_sound(path: str | Path, sampling_rate_hz: int):
    """A sound file (WAV, FLAC, OGG, MP3 ...) of any length, rate and number of channels: mono
    float32 [samples] as numpy.

    Read and resampled in blocks, so that an hour needs little more than its own samples. Raises
    InputError for what is not sound, has none, or holds values that are no numbers; UsageError
    without the extra [audio].
    """
    import numpy as np

    soundfile, soxr = _libraries()
    path = Path(path)
    if not path.is_file():
        raise InputError(f"There is no sound file at {path}.")
    try:
        with soundfile.SoundFile(path) as file:
            resampler = soxr.ResampleStream(file.samplerate, sampling_rate_hz, 1, dtype="float32")
            blocks = file.blocks(blocksize=_BLOCK_SECONDS * file.samplerate, dtype="float32", always_2d=True)
            parts = [resampler.resample_chunk(block.mean(axis=1)) for block in blocks]
            parts.append(resampler.resample_chunk(np.zeros(0, dtype=np.float32), last=True))
    except soundfile.LibsndfileError as error:
        raise InputError(
            f"{path} is not a sound file that can be read ({error.error_string.rstrip('.')})."
        ) from error
    sound = np.concatenate(parts)
    if not len(sound):
        raise InputError(f"{path} holds no sound: it has 0 samples.")
    if not np.isfinite(sound).all():
        raise InputError(f"{path} holds samples that are not numbers (NaN or infinity).")
    return sound


def _libraries():
    """soundfile and soxr. Raises UsageError where they are not installed."""
    try:
        import soundfile
        import soxr
    except ImportError as error:
        raise UsageError(f"Reading sound needs {error.name}: pip install 'edgeexport[audio]'.") from error
    return soundfile, soxr
