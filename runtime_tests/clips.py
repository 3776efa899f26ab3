"""Real speech with what was said in it, from build/test-data (scripts/fetch-test-data)."""

import re
from pathlib import Path

DATA = Path(__file__).parents[1] / "build" / "test-data"
BECKETT = DATA / "packages" / "moonshine_onnx" / "assets" / "beckett.wav"
TINY_EN = DATA / "whisper-tiny.en" / "model.safetensors"


def clips():
    """(wav, transcript in lower case without punctuation) of eleven recordings."""
    found = [(BECKETT, "ever tried ever failed no matter try again fail again fail better")]
    for folder in ("cards", "librivox"):
        lines = next((DATA / "speech" / folder).glob("*transcription")).read_text().splitlines()
        for line in lines:
            text, name = re.fullmatch(r"<s> (.*?)\s*</s> \((.*)\)", line).groups()
            found.append((DATA / "speech" / folder / f"{name}.wav", text))
    return found


def plain(text):
    """Lower case, no punctuation: what a word error rate is counted on."""
    return re.sub(r"[^a-z' ]+", " ", text.lower().replace("-", " ")).strip()
