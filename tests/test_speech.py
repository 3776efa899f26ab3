"""Whisper's decoding rules are transformers' own; windows are cut where a segment ends."""

import numpy as np
import pytest
import torch
from manifests import manifest_of

from edgeexport.errors import InputError
from edgeexport.models.whisper import _prepare
from edgeexport.pipelines.speech import _check_options, allowed, decode_window, split_window

ENGLISH, MANY = _prepare("whisper-tiny.en"), _prepare("whisper-tiny")


def processors(facts):
    """What transformers' generate applies with return_timestamps."""
    from edgeexport.modeling.torchvision_operators import ensure_torchvision

    ensure_torchvision()
    from transformers import GenerationConfig, LogitsProcessorList
    from transformers.generation.logits_process import (
        SuppressTokensAtBeginLogitsProcessor,
        SuppressTokensLogitsProcessor,
        WhisperTimeStampLogitsProcessor,
    )

    settings = GenerationConfig(
        no_timestamps_token_id=facts["no_timestamps"],
        eos_token_id=facts["end"],
        max_initial_timestamp_index=50,
    )
    return LogitsProcessorList(
        [
            SuppressTokensLogitsProcessor(facts["suppress"]),
            SuppressTokensAtBeginLogitsProcessor(facts["suppress_first"], 1),
            WhisperTimeStampLogitsProcessor(settings, begin_index=1),
        ]
    )


@pytest.mark.parametrize("facts", [ENGLISH, MANY], ids=["english", "multilingual"])
@pytest.mark.parametrize(
    "history",
    [
        [],
        ["t0"],
        ["t0", 5],
        ["t0", 5, 6, "t9"],
        ["t0", 5, "t9", "t9"],
        ["t0", 5, "t9", "t9", 7],
        ["t0", 5, "t9", "t9", 7, 8, "t20"],
        ["t0", 5, "t1500"],
    ],
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
    assert (ENGLISH["start"], ENGLISH["no_timestamps"], ENGLISH["transcribe"], ENGLISH["no_speech"]) == (
        50257,
        50362,
        50358,
        50361,
    )
    assert (
        MANY["start"],
        MANY["languages"]["en"],
        MANY["languages"]["su"],
        MANY["translate"],
        MANY["transcribe"],
        MANY["timestamps"],
    ) == (50258, 50259, 50357, 50358, 50359, 50364)


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
    ids=[
        "one",
        "two",
        "cut off in the text",
        "the last window ends with the sound",
        "cut off at the pause",
        "no end",
        "nothing",
    ],
)
def test_windows_are_cut_where_a_segment_ends(tokens, samples, segments, used):
    found, advance = split_window(tokens, ENGLISH, samples)
    assert [(pytest.approx(a), pytest.approx(b), ids) for a, b, ids in segments] == found and advance == used


@pytest.mark.parametrize(
    ("facts", "language", "task"),
    [
        (ENGLISH, "de", "transcribe"),
        (ENGLISH, None, "translate"),
        (MANY, "klingon", "transcribe"),
        (MANY, None, "sing"),
    ],
)
def test_options_that_cannot_be_met_are_refused(facts, language, task):
    with pytest.raises(InputError):
        _check_options(facts, language, task)


class FakeProgram:
    """Answers prompts with set logits, and writes down what it was asked."""

    def __init__(self, facts, first, then):
        self.manifest = manifest_of(facts)
        self.asked, self.answers = [], [first, *then]

    def __getitem__(self, name):
        if name in ("log_mel", "encode"):
            return lambda *tensors: tensors

        def ask(tokens, position, *sound):
            self.asked.append((name, tokens[0].tolist(), int(position)))
            return (self.answers.pop(0)[None],)

        return ask


def likely(facts, *tokens, height=9.0):
    logits = torch.zeros(facts["timestamps"] + 1501)
    logits[list(tokens)] = height
    return logits


def test_a_multilingual_window_detects_the_language_and_asks_in_it():
    facts = MANY
    first, end = facts["timestamps"], facts["end"]
    program = FakeProgram(
        facts,
        likely(facts, facts["languages"]["de"]),
        [
            likely(facts, first),
            likely(facts, 500),
            likely(facts, first + 50),
            likely(facts, end, height=30.0),
        ],
    )
    window = decode_window(program, np.full(1600, 0.1, np.float32), None, "translate")
    assert window.language == "de" and window.tokens == [first, 500, first + 50]
    start = facts["start"]
    assert program.asked == [
        ("prefill", [start], 0),
        ("prefill", [facts["languages"]["de"], facts["translate"]], 1),
        ("decode_step", [first], 3),
        ("decode_step", [500], 4),
        ("decode_step", [first + 50], 5),
    ]


def test_an_english_window_has_the_start_alone_as_its_prompt():
    facts = ENGLISH
    program = FakeProgram(
        facts,
        likely(facts, facts["timestamps"]),
        [likely(facts, 500), likely(facts, facts["end"], height=30.0)],
    )
    assert decode_window(program, np.full(1600, 0.1, np.float32), None, "transcribe").tokens == [
        facts["timestamps"],
        500,
    ]
    assert [a[:2] for a in program.asked] == [
        ("prefill", [facts["start"]]),
        ("decode_step", [facts["timestamps"]]),
        ("decode_step", [500]),
    ]


def test_a_window_that_the_model_takes_for_silence_has_no_text():
    facts = ENGLISH
    program = FakeProgram(
        facts,
        likely(facts, facts["no_speech"], height=30.0),
        [likely(facts, 500, height=0.0), likely(facts, facts["end"], height=20.0)],
    )
    assert decode_window(program, np.full(1600, 0.1, np.float32), None, "transcribe") is None
    assert decode_window(program, np.zeros(1600, np.float32), None, "transcribe") is None


def test_decoding_ends_with_the_last_position():
    facts = ENGLISH
    then = [likely(facts, 500) for _ in range(500)]
    program = FakeProgram(facts, likely(facts, facts["timestamps"]), then)
    window = decode_window(program, np.full(1600, 0.1, np.float32), None, "transcribe")
    assert (
        len(window.tokens) == facts["text_positions"] - 1
        and program.asked[-1][2] == facts["text_positions"] - 2
    )
