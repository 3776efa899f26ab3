"""Whisper's decoding rules are transformers' own; windows are cut where a segment ends."""

import pytest
import torch

from edgeexport.errors import InputError
from edgeexport.models.whisper import _prepare
from edgeexport.speech import _check_options, allowed, split_window

ENGLISH, MANY = _prepare("whisper-tiny.en"), _prepare("whisper-tiny")


def processors(facts):
    """What transformers' generate applies with return_timestamps."""
    from edgeexport.torchvision_ops import ensure_torchvision

    ensure_torchvision()
    from transformers import GenerationConfig, LogitsProcessorList
    from transformers.generation.logits_process import (
        SuppressTokensAtBeginLogitsProcessor,
        SuppressTokensLogitsProcessor,
        WhisperTimeStampLogitsProcessor,
    )

    settings = GenerationConfig(no_timestamps_token_id=facts["no_timestamps"], eos_token_id=facts["end"], max_initial_timestamp_index=50)
    return LogitsProcessorList([
        SuppressTokensLogitsProcessor(facts["suppress"]), SuppressTokensAtBeginLogitsProcessor(facts["suppress_first"], 1),
        WhisperTimeStampLogitsProcessor(settings, begin_index=1),
    ])  # fmt: skip


@pytest.mark.parametrize("facts", [ENGLISH, MANY], ids=["english", "multilingual"])
@pytest.mark.parametrize(
    "history",
    [[], ["t0"], ["t0", 5], ["t0", 5, 6, "t9"], ["t0", 5, "t9", "t9"], ["t0", 5, "t9", "t9", 7], ["t0", 5, "t9", "t9", 7, 8, "t20"], ["t0", 5, "t1500"]],
    ids=str,
)
@pytest.mark.parametrize("lift", [0.0, 8.0])
def test_rules_are_those_of_transformers(facts, history, lift):
    first, size = facts["timestamps"], facts["timestamps"] + 1501
    tokens = [first + int(t[1:]) if isinstance(t, str) else t for t in history]
    for seed in range(3):
        logits = 3 * torch.randn(size, generator=torch.Generator().manual_seed(seed))
        logits[first:] += lift
        wanted = processors(facts)(torch.tensor([[facts["start"], *tokens]]), logits[None].clone())[0]
        assert torch.equal(allowed(logits, tokens, facts), wanted)


def test_token_ids_are_those_of_the_released_vocabularies():
    assert (ENGLISH["start"], ENGLISH["no_timestamps"], ENGLISH["transcribe"], ENGLISH["no_speech"]) == (50257, 50362, 50358, 50361)
    assert (MANY["start"], MANY["languages"]["en"], MANY["languages"]["su"], MANY["translate"], MANY["transcribe"], MANY["timestamps"]) == (50258, 50259, 50357, 50358, 50359, 50364)


T = ENGLISH["timestamps"]
FULL, RATE = ENGLISH["window_samples"], 16_000


@pytest.mark.parametrize(
    ("tokens", "samples", "segments", "used"),
    [
        ([T, 1, 2, T + 100], FULL, [(0.0, 2.0, [1, 2])], FULL),
        ([T, 1, T + 100, T + 100, 2, T + 150], FULL, [(0.0, 2.0, [1]), (2.0, 3.0, [2])], FULL),
        ([T, 1, T + 100, T + 100, 2], FULL, [(0.0, 2.0, [1])], 2 * RATE),
        ([T, 1, T + 100, T + 100, 2], 5 * RATE, [(0.0, 2.0, [1]), (2.0, 5.0, [2])], 5 * RATE),
        ([T, 1, T + 100, T + 120], FULL, [(0.0, 2.0, [1])], 2 * RATE),
        ([T, 1, 2], FULL, [(0.0, 30.0, [1, 2])], FULL),
        ([], FULL, [], FULL),
    ],
    ids=["one", "two", "cut off in the text", "the last window ends with the sound", "cut off at the pause", "no end", "nothing"],
)  # fmt: skip
def test_windows_are_cut_where_a_segment_ends(tokens, samples, segments, used):
    found, advance = split_window(tokens, ENGLISH, samples)
    assert [(pytest.approx(a), pytest.approx(b), ids) for a, b, ids in segments] == found and advance == used


@pytest.mark.parametrize(("facts", "language", "task"), [(ENGLISH, "de", "transcribe"), (ENGLISH, None, "translate"), (MANY, "klingon", "transcribe"), (MANY, None, "sing")])
def test_options_that_cannot_be_met_are_refused(facts, language, task):
    with pytest.raises(InputError):
        _check_options(facts, language, task)
