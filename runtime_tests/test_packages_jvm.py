"""The real models' pipelines in Kotlin, on the JVM: with the program's recorded answers they make
the same calls, and say the same, as in Python.
"""

import sys
from pathlib import Path

import pytest
from clips import BECKETT

from edgeexport.artifact.folder import open_artifact
from edgeexport.ship.mobile.golden import record, write

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from phone_tools import PureKotlin  # noqa: E402


@pytest.fixture(scope="module")
def kotlin():
    running = PureKotlin()
    yield running
    running.close()


@pytest.mark.parametrize(
    ("model", "given"),
    [
        ("sam2", {}),
        ("edgetam", {}),
        ("mvit", {}),
        ("micro", {}),
        ("micro_captioner", {}),
        ("blip", {}),
        ("yolo", {}),
        ("whisper", {"audio": str(BECKETT)}),
        ("whisper", {}),
    ],
    ids=["sam2", "edgetam", "mvit", "micro", "micro_captioner", "blip", "yolo", "whisper", "whisper, tones"],
)
def test_kotlin_says_what_python_says(request, kotlin, tmp_path, model, given):
    edge = request.getfixturevalue(model)
    artifact = open_artifact(edge)
    golden = record(artifact, given)
    if given:
        assert golden.runs[0]["result"]["text"], "speech was heard"
    write(golden, tmp_path / "golden")
    tokenizer = edge / "tokenizer.json"
    for figures in kotlin.replay(
        tmp_path / "golden", edge / "manifest.json", tokenizer if tokenizer.is_file() else None
    ):
        print(model, figures)
        assert figures["inputs of calls"] == 0, "normalised pixels and samples are the same to the last bit"
