"""BLIP base at full size with random weights, from the emitted file: the tokens that transformers'
own generate gives, for a photograph.
"""

import json

import pytest
import torch
from command_line import edgeexport as command
from PIL import Image

import edgeexport
from edgeexport.pipelines import captions
from edgeexport.pipelines.media.photos import read_photo, to_tensor


@pytest.fixture(scope="module")
def program(blip):
    return edgeexport.open(blip)


@pytest.fixture(scope="module")
def original():
    from edgeexport.method import Weights
    from edgeexport.models import blip as models

    return models.load("blip-captioning-base", Weights("random", 0))[0]


def test_every_finding_passed_and_the_tied_matrix_is_stored_once(blip):
    manifest = json.loads(command("show", blip, "--json").stdout)
    assert all(f["passed"] for f in manifest["findings"])
    assert (
        manifest["files"]["blip-captioning-base.pte"]["size_bytes"]
        <= 1.1 * manifest["weights"]["size_bytes"]
        <= 1.1 * 897e6
    )
    methods = {m["name"]: m for m in manifest["methods"]}
    assert (
        methods["encode_image"]["delegation"]["delegates"] == 1 and len(methods["decode_step"]["state"]) == 24
    )
    assert methods["decode_step"]["dims"][0]["verified"] == [1, 127]


def test_twenty_greedy_tokens_are_those_of_transformers(program, original, photo):
    facts = program.manifest.prepare
    pixels = to_tensor(read_photo(photo), 384, 384, facts["mean"], facts["std"], Image.Resampling.BICUBIC)
    for prompt in ([], [1037, 6302, 1997]):
        begin = torch.tensor([[facts["start"], *prompt, facts["end"]]])  # generate drops the last token
        with torch.no_grad():
            wanted = original.generate(
                pixels, begin.clone(), max_new_tokens=20, num_beams=1, do_sample=False
            )[0].tolist()
        found = captions.generate(program, begin[0, :-1].tolist(), 20, program["encode_image"](pixels))
        assert found == wanted[len(prompt) + 1 :] and len(found) == 20


def test_the_pipeline_says_the_same_and_that_the_weights_are_random(blip, program, photo):
    said = json.loads(command("run", blip, "--image", photo, "--json").stdout)
    facts = program.manifest.prepare
    seen = program["encode_image"](
        to_tensor(read_photo(photo), 384, 384, facts["mean"], facts["std"], Image.Resampling.BICUBIC)
    )
    assert said["token_ids"] == captions.generate(program, [facts["start"]], 20, seen)
    assert said["caption"] is None and "RANDOM" in said["note"]


def test_wrong_images_and_options_exit_with_2(blip, photo, tmp_path):
    (tmp_path / "not.jpg").write_bytes(b"x")
    for options in (
        ["--image", tmp_path / "not.jpg"],
        ["--image", photo, "--max-tokens", "128"],
        ["--image", photo, "--max-tokens", "0"],
        ["--image", photo, "--prompt", "a photo of"],
    ):
        done = command("run", blip, *options, check=False)
        assert done.returncode == 2 and "Traceback" not in done.stderr, done.stderr


@pytest.mark.parametrize(
    "image",
    [Image.new("L", (1, 1)), Image.new("RGBA", (300, 200)), Image.new("RGB", (6000, 10))],
    ids=["1x1 grey", "alpha", "narrow"],
)
def test_odd_photos_are_captioned(program, tmp_path, image):
    image.save(tmp_path / "odd.png")
    assert len(captions.run(program, str(tmp_path / "odd.png"), max_tokens=3)["token_ids"]) == 3
