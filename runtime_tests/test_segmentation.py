"""SAM 2 tiny and EdgeTAM at full size, from the emitted file: what the build promised, and the
whole pipeline on a photograph.
"""

import json

import numpy as np
import pytest
import torch
from command_line import edgeexport as command
from PIL import Image

import edgeexport
from edgeexport.errors import InputError

PLANNED_BYTES = {"sam2": 150e6, "edgetam": 60e6}


@pytest.fixture(scope="module", params=PLANNED_BYTES)
def name(request):
    return request.param


@pytest.fixture(scope="module")
def artifact(name, request):
    return request.getfixturevalue(name)


@pytest.fixture(scope="module")
def program(artifact):
    return edgeexport.open(artifact)


def test_every_finding_passed_within_the_limits(artifact, name):
    manifest = json.loads(command("show", artifact, "--json").stdout)
    assert all(f["passed"] for f in manifest["findings"])
    relative = [
        v["max_abs_relative"]
        for f in manifest["findings"]
        if f["check"] == "numerics"
        for v in f["details"].values()
        if isinstance(v, dict) and "max_abs_relative" in v
    ]
    assert len(relative) >= 24 and max(relative) <= 1e-3
    methods = {m["name"]: m for m in manifest["methods"]}
    assert methods["encode_image"]["planned_memory_bytes"] <= PLANNED_BYTES[name]
    assert methods["decode_masks"]["dims"][1]["verified"] == [1, 16]
    assert manifest["files"][manifest["program"]]["size_bytes"] <= 1.2 * manifest["weights"]["size_bytes"]
    assert manifest["weights"]["source"] == "random" and manifest["weights"]["seed"] == 0


def test_delegation_is_as_good_as_it_was(program):
    for name, most in (("encode_image", 3), ("decode_masks", 3)):
        assert program.artifact.methods[name].delegation.delegates <= most


@pytest.fixture(scope="module")
def original(name):
    """transformers' model with the same weights, with its own way of choosing masks."""
    from edgeexport import catalog
    from edgeexport.method import Weights

    loaded = catalog.model(name).load(Weights("random", 0))[0]
    del loaded.mask_decoder.__dict__["_dynamic_multimask_via_stability"]
    return loaded


@pytest.mark.parametrize(
    ("options", "points", "labels", "multi"),
    [
        (["--point", "300,190"], [[300.0, 190.0]], [1], True),
        (["--point", "300,190", "--point", "20,20,0"], [[300.0, 190.0], [20.0, 20.0]], [1, 0], False),
        (["--box", "170,20,480,390"], [[170.0, 20.0], [480.0, 390.0]], [2, 3], False),
    ],
)
def test_a_photo_and_clicks_give_the_mask_that_transformers_gives(
    artifact, photo, original, tmp_path, options, points, labels, multi
):
    done = command(
        "run",
        artifact,
        "--image",
        photo,
        *options,
        "--mask",
        tmp_path / "mask.png",
        "--overlay",
        tmp_path / "overlay.png",
        "--json",
    )
    said = json.loads(done.stdout)
    mask = np.asarray(Image.open(tmp_path / "mask.png")) > 127
    assert mask.shape == (400, 600) and said["mask_pixels"] == mask.sum()
    assert "RANDOM" in said["caption"] and Image.open(tmp_path / "overlay.png").width == 600

    from edgeexport.pipelines.media.photos import read_photo, to_tensor

    pixels = to_tensor(read_photo(photo), 1024, 1024, (0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
    scaled = torch.tensor([[points]]) * torch.tensor([1024 / 600, 1024 / 400])
    with torch.no_grad():
        want = original(
            pixel_values=pixels,
            input_points=scaled,
            input_labels=torch.tensor([[labels]], dtype=torch.int32),
            multimask_output=multi,
        )
    best = int(want.iou_scores[0, 0].argmax())
    full = (
        torch.nn.functional.interpolate(
            want.pred_masks[:, 0, best : best + 1], (400, 600), mode="bilinear", align_corners=False
        )[0, 0]
        > 0
    )
    union = (full.numpy() | mask).sum()
    assert (full.numpy() & mask).sum() / union >= 0.999
    assert said["iou_score"] == pytest.approx(float(want.iou_scores[0, 0, best]), abs=1e-4)


def test_an_image_permuted_from_hwc_is_refused(program):
    with pytest.raises(InputError, match="contiguous"):
        program["encode_image"](torch.randn(1, 1024, 1024, 3).permute(0, 3, 1, 2))


def test_one_point_too_many_is_refused(program):
    method = program["decode_masks"]
    features = [torch.zeros(i.sized({"batch": 1, "points": 17})) for i in method.inputs[:3]]
    with pytest.raises(InputError, match="points = 17.*takes 1 to 16"):
        method(
            *features,
            torch.zeros(1, 17, 2),
            torch.zeros(1, 17, dtype=torch.int32),
            torch.zeros(1, 1, 256, 256),
            torch.zeros(1),
        )


def test_wrong_images_and_prompts_exit_with_2(artifact, photo, tmp_path):
    (tmp_path / "not.jpg").write_bytes(b"x")
    for options in (
        ["--image", tmp_path / "not.jpg", "--point", "1,1"],
        ["--image", photo],
        ["--image", photo, "--point", "9999,1"],
        ["--image", photo, "--pint", "1,1"],
    ):
        done = command("run", artifact, *options, check=False)
        assert done.returncode == 2 and "Traceback" not in done.stderr, done.stderr
