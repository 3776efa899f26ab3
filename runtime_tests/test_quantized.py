"""Quantized micro checkpoints, with learned weights: the task's own answer, beside float32's."""

from pathlib import Path

import micro_blip
import micro_mvit
import pytest
import torch
from safetensors.torch import load_model

import edgeexport

HERE = Path(__file__).parent
EXAMPLES, SEED = 400, 17
MAY_LOSE = 0.005
"""Of the accuracy: half a point."""


def right(answers, wanted):
    return sum(a == b for a, b in zip(answers, wanted, strict=True)) / len(wanted)


def test_directions_in_int8(micro_int8):
    module = micro_mvit.build().eval()
    load_model(module, HERE / "micro" / "mvit.safetensors")
    clips, directions = micro_mvit.batch(micro_mvit.HELD_OUT, EXAMPLES, SEED)
    program = edgeexport.open(micro_int8)
    parts = clips.split(16)
    with torch.no_grad():
        eager = torch.cat([module(part) for part in parts]).argmax(1)
    answers = torch.cat([program["classify"](part.contiguous())[0] for part in parts]).argmax(1)
    found = {name: right(a.tolist(), directions.tolist()) for name, a in (("fp32", eager), ("int8", answers))}
    print(f"accuracy on held-out digits: {found}, {right(answers.tolist(), eager.tolist()):.4f} alike")
    assert found["int8"] >= found["fp32"] - MAY_LOSE


def test_captions_in_int8(micro_captioner_int8):
    program = edgeexport.open(micro_captioner_int8)
    eager, answers, wanted = micro_blip.held_out_captions(program, EXAMPLES, SEED)
    found = {"fp32": right(eager, wanted), "int8": right(answers, wanted)}
    print(f"exact captions of held-out digits: {found}, {right(answers, eager):.4f} alike")
    assert found["int8"] >= found["fp32"] - MAY_LOSE


@pytest.mark.parametrize("name", ["micro_int8", "micro_captioner_int8"])
def test_learned_weights_are_judged(name, request):
    manifest = edgeexport.open(request.getfixturevalue(name)).manifest
    judged = [f for f in manifest.findings if f.check == "quality"]
    assert judged and all(f.passed and f.limit.startswith("SQNR (dB) >= ") for f in judged)
