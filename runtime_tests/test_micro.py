"""The micro checkpoints, with learned weights: answers that mean something, from the emitted file
end to end.
"""

import json
from pathlib import Path

import micro_blip
import micro_mvit
import pytest
import torch
from command_line import edgeexport as command
from PIL import Image
from safetensors.torch import load_file, load_model

import edgeexport

HERE = Path(__file__).parent
CLIPS, SEED = 128, 5


@pytest.fixture(scope="module")
def eager():
    module = micro_mvit.build().eval()
    load_model(module, HERE / "micro" / "mvit.safetensors")
    return module


def said(program, clips):
    """The directions that the emitted file says, by batches of at most 16."""
    return torch.cat([program["classify"](part.contiguous())[0] for part in clips.split(16)]).argmax(1)


def test_directions_of_digits_never_seen(micro, eager):
    clips, directions = micro_mvit.batch(micro_mvit.HELD_OUT, CLIPS, SEED)
    program = edgeexport.open(micro)
    answers = said(program, clips)
    with torch.no_grad():
        assert torch.equal(answers, eager(clips).argmax(1))
    assert (answers == directions).float().mean() >= 0.9
    # Played backwards a clip shows the same frames and another direction: it is the motion that is
    # seen.
    opposite = torch.tensor([1, 0, 3, 2])[directions]
    assert (said(program, clips.flip(2)) == opposite).float().mean() >= 0.9


def test_a_folder_of_frames_gives_the_direction_by_name(micro, tmp_path):
    clips, directions = micro_mvit.frames(micro_mvit.HELD_OUT, 32, seed=9)
    for direction, label in enumerate(micro_mvit.LABELS):
        folder = tmp_path / label
        folder.mkdir()
        for number, frame in enumerate(clips[directions.tolist().index(direction)]):
            Image.fromarray(frame).save(folder / f"{number:02}.png")
        best = json.loads(command("run", micro, "--video", folder, "--json").stdout)["top5"]
        assert len(best) == 4 and best[0]["label"] == label and best[0]["probability"] > 0.5


def test_captions_of_digits_never_seen(micro_captioner):
    eager, emitted, wanted = micro_blip.held_out_captions(edgeexport.open(micro_captioner), 200, seed=5)
    assert emitted == eager and all(len(text.split()) == 2 for text in wanted)
    exact = sum(a == b for a, b in zip(emitted, wanted)) / len(wanted)
    print(f"exact captions of held-out digits, from the .pte: {exact:.3f}")
    assert exact >= 0.85


def test_a_picture_is_captioned_in_words_and_a_prompt_is_continued(micro_captioner, tmp_path):
    pixels, captions = micro_blip.batch(micro_blip.HELD_OUT, 20, seed=6)
    right = 0
    for index in range(4):
        levels = ((pixels[index].permute(1, 2, 0) + 1.0) * 127.5).round().clamp(0, 255).to(torch.uint8)
        Image.fromarray(levels.numpy()).save(tmp_path / "digit.png")
        wanted = micro_blip.decode(captions[index].tolist())
        right += (
            json.loads(
                command(
                    "run", micro_captioner, "--image", tmp_path / "digit.png", "--max-tokens", "4", "--json"
                ).stdout
            )["caption"]
            == wanted
        )
    assert right >= 3
    side = wanted.split()[1]
    said = json.loads(
        command(
            "run",
            micro_captioner,
            "--image",
            tmp_path / "digit.png",
            "--prompt",
            "three",
            "--max-tokens",
            "4",
            "--json",
        ).stdout
    )
    assert said["caption"] == f"three {side}"


@pytest.mark.parametrize("name", ["mvit", "blip"])
def test_checkpoints_are_small_float32_safetensors(name):
    path = HERE / "micro" / f"{name}.safetensors"
    assert path.stat().st_size < 2e6
    assert {t.dtype for t in load_file(path).values() if t.is_floating_point()} == {torch.float32}
