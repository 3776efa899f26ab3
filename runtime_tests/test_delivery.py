"""The real models for download: small programs, weights apart, the same answers to the last bit."""

import json
from pathlib import Path

import pytest
from command_line import edgeexport

HERE = Path(__file__).parent


def delivered(out, *artifacts):
    return json.loads(edgeexport("deliver", *artifacts, "--allow-random", "--out", out, "--json").stdout)


@pytest.mark.parametrize(
    "name", ["sam2", "edgetam", "mvit", "whisper", "blip", "yolo", "micro_captioner", "micro"]
)
def test_the_program_is_small_and_answers_as_the_whole_one(name, request, tmp_path):
    artifact = request.getfixturevalue(name)
    manifest = delivered(tmp_path / "cdn", artifact)
    (program,), files = manifest["programs"].values(), manifest["files"]
    methods = json.loads((artifact / "manifest.json").read_text())["methods"]
    assert program["equal_calls"] == sum(min(2, len(method["cases"])) for method in methods)
    small, (data,) = files[program["program"]]["size_bytes"], program["data"]
    assert small < 1e6 and small + files[data]["size_bytes"] < 1.01 * program["made_of"]["size_bytes"] + 1e5


def test_a_new_version_with_the_same_weights_costs_its_program(micro, tmp_path):
    """The micro MViT for other batches; its weights are enough to be shared."""
    told = json.loads((micro / "manifest.json").read_text())
    other = tmp_path / "narrow"
    model, weights = f"{HERE / 'micro_mvit.py'}:MODEL", HERE / "micro" / "mvit.safetensors"
    edgeexport("build", model, "--target", "xnnpack", "--weights", weights, "--batch", "1:2", "--out", other)
    manifest = delivered(tmp_path / "both", f"wide={micro}", f"narrow={other}")
    wide, narrow = (set(manifest["programs"][name]["data"]) for name in ("wide", "narrow"))
    assert (
        sum(manifest["files"][name]["size_bytes"] for name in wide & narrow)
        > 0.9 * told["weights"]["size_bytes"]
    )
    for name, artifact in (("old", micro), ("new", other)):
        delivered(tmp_path / name, artifact)
    found = json.loads(edgeexport("delta", tmp_path / "old", tmp_path / "new", "--json").stdout)
    whole = json.loads(edgeexport("delta", micro, other, "--json").stdout)
    assert found["download_bytes"] < 0.3 * whole["download_bytes"]
