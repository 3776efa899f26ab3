"""Speech recognition as a pipeline: a sound file of any length to text with times, by Whisper's
rules.

The rules are those of the paper (https://arxiv.org/abs/2212.04356, section 3.8 and 4.5) as
openai/whisper and transformers' generate apply them: greedy, tokens that are no speech suppressed,
timestamps in pairs that never go back.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from edgeexport.errors import InputError
from edgeexport.method import Option, Pipeline
from edgeexport.pipelines.media.sounds import read_sound

if TYPE_CHECKING:
    import torch

OPTIONS = (
    Option(
        "audio",
        "sound file (WAV, FLAC, OGG, MP3), any length and sampling rate",
        "file",
        required=True,
        sample="sound",
    ),
    Option("language", "language spoken, as a code such as en or de; detected when not given"),
    Option("task", "transcribe, or translate to English", default="transcribe"),
)

SILENCE = 1e-4
"""A window whose samples all stay below this (-80 dBFS) has no speech in it, and is not decoded."""

# From openai/whisper: a window is taken for silence when both hold.
_NO_SPEECH_PROBABILITY, _LOG_PROBABILITY = 0.6, -1.0


@dataclass(frozen=True)
class Window:
    """What was decoded from up to 30 s of sound: token ids without the prompt and the end, and how
    sure the model was.
    """

    tokens: list[int]
    mean_log_probability: float
    no_speech_probability: float
    language: str | None


def run(program, audio: str, language: str | None = None, task: str = "transcribe") -> dict[str, Any]:
    """Transcribe a sound file.

    Returns text, segments with times in seconds, and token ids. Raises InputError.
    """
    facts = program.manifest.prepare
    _check_options(facts, language, task)
    sound = read_sound(audio, facts["sampling_rate_hz"])
    tokenizer = program.artifact.tokenizer()
    segments, tokens, start = [], [], 0
    while start < len(sound):
        piece = sound[start : start + facts["window_samples"]]
        window = decode_window(program, piece, language, task)
        if window is None:
            start += len(piece)
            continue
        language = language or window.language
        found, used_samples = split_window(window.tokens, facts, len(piece))
        offset_s = start / facts["sampling_rate_hz"]
        tokens += window.tokens
        segments += [
            {"start_s": offset_s + a, "end_s": offset_s + b, "text": _text(tokenizer, ids)}
            for a, b, ids in found
        ]
        start += used_samples
    text = "".join(s["text"] for s in segments).strip() if tokenizer else None
    return {
        "audio": audio,
        "duration_s": len(sound) / facts["sampling_rate_hz"],
        "language": language,
        "segments": segments,
        "text": text,
        "token_ids": tokens,
        "note": program.artifact.text_note,
    }


def _check_options(facts: dict, language: str | None, task: str) -> None:
    if task not in ("transcribe", "translate"):
        raise InputError(f"--task is transcribe or translate, not '{task}'.")
    if not facts["multilingual"]:
        if language not in (None, "en") or task != "transcribe":
            raise InputError(
                "This model knows English only: leave out --language and --task, or build one without .en in"
                " its name."
            )
    elif language is not None and language not in facts["languages"]:
        raise InputError(
            f"--language '{language}' is none of the model's languages: {', '.join(facts['languages'])}."
        )


def _text(tokenizer, ids: list[int]) -> str:
    return tokenizer.decode(ids, skip_special_tokens=True) if tokenizer else " ".join(map(str, ids))


def decode_window(program, piece, language: str | None, task: str) -> Window | None:
    """Greedy decoding of up to 30 s of sound [samples]; None when there is no speech in it."""
    import numpy as np
    import torch

    if np.abs(piece).max() < SILENCE:
        return None
    facts = program.manifest.prepare
    sound = program["encode"](*program["log_mel"](torch.from_numpy(np.ascontiguousarray(piece))))
    logits = _ask(program, "prefill", [facts["start"]], 0, sound)
    no_speech = float(logits.softmax(-1)[facts["no_speech"]])
    prompt = [facts["start"]]
    if facts["multilingual"]:
        ids = facts["languages"]
        language = language or max(ids, key=lambda code: float(logits[ids[code]]))
        prompt += [ids[language], facts[task]]
        logits = _ask(program, "prefill", prompt[1:], 1, sound)
    tokens, total = [], 0.0
    while len(prompt) + len(tokens) < facts["text_positions"]:
        log_probabilities = allowed(logits, tokens, facts).log_softmax(-1)
        token = int(log_probabilities.argmax())
        total += float(log_probabilities[token])
        if token == facts["end"]:
            break
        tokens.append(token)
        if len(prompt) + len(tokens) < facts["text_positions"]:
            logits = _ask(program, "decode_step", [token], len(prompt) + len(tokens) - 1, sound)
    mean = total / (len(tokens) + 1)
    if no_speech > _NO_SPEECH_PROBABILITY and mean < _LOG_PROBABILITY:
        return None
    return Window(tokens, mean, no_speech, language)


def _ask(program, method: str, tokens: list[int], position: int, sound) -> torch.Tensor:
    """The logits [V] for what follows `tokens`, the first of which is at `position`."""
    import torch

    return program[method](torch.tensor([tokens]), torch.tensor([position]), *sound)[0][0]


def allowed(logits: torch.Tensor, tokens: list[int], facts: dict) -> torch.Tensor:
    """The logits [V] of the next token after `tokens` of this window, minus infinity where the
    rules forbid it.

    The same as transformers' SuppressTokens, SuppressTokensAtBegin and WhisperTimeStamp logits
    processors.
    """
    never = float("-inf")
    logits = logits.clone()
    end, first_time = facts["end"], facts["timestamps"]
    logits[facts["suppress"]] = never
    logits[facts["no_timestamps"]] = never
    if not tokens:
        logits[facts["suppress_first"]] = never
        logits[:first_time] = never  # a window begins with a time
        logits[first_time + facts["latest_first_timestamp"] + 1 :] = never
        return logits
    after_time = tokens[-1] >= first_time
    after_two = len(tokens) < 2 or tokens[-2] >= first_time
    if after_time and after_two:
        logits[first_time:] = never  # a segment has begun: text follows
    elif after_time:
        logits[:end] = never  # a segment has ended: the next one begins, or all ends
    times = [t for t in tokens if t >= first_time]
    if times:
        logits[first_time : times[-1] + (0 if after_time and not after_two else 1)] = (
            never  # time does not go back
        )
    probabilities = logits.log_softmax(-1)
    if probabilities[first_time:].logsumexp(-1) > probabilities[:first_time].max():
        logits[:first_time] = never  # some time is likelier than any one word
    return logits


def split_window(
    tokens: list[int], facts: dict, samples: int
) -> tuple[list[tuple[float, float, list[int]]], int]:
    """Segments (start s, end s, token ids of text) of a window, and how many of its samples they
    use up.

    Two times in a row end one segment and begin the next. A window whose last segment was cut off
    by its end is used up to where that segment began; the next window starts there.
    """
    first, rate = facts["timestamps"], facts["sampling_rate_hz"]
    seconds = facts["seconds_a_timestamp"]
    segments, begin, ids, last_end = [], 0.0, [], None
    for token in tokens:
        if token < first:
            ids.append(token)
            continue
        time_s = (token - first) * seconds
        if ids:
            segments.append((begin, time_s, ids))
            last_end = time_s
        begin, ids = time_s, []
    full = samples == facts["window_samples"]
    if not ids:
        cut_off = full and len(tokens) > 1 and tokens[-2] >= first  # begun, and nothing heard of it
        return segments, round(last_end * rate) if cut_off and last_end else samples
    if full and last_end:
        return segments, round(last_end * rate)
    segments.append((begin, samples / rate, ids))
    return segments, samples


PIPELINE = Pipeline(OPTIONS, run, "--audio speech.wav")
