"""YOLO11n pose at full size, from the emitted file: every batch from 1 to 16, one delegate, and
photos and videos.
"""

import json
import sys

import numpy as np
import pytest
import torch
from command_line import edgeexport as command
from PIL import Image

import edgeexport
from edgeexport.errors import InputError


@pytest.fixture(scope="module")
def original():
    """Ultralytics' model with the same weights."""
    from edgeexport.method import Weights
    from edgeexport.models import yolo11_pose

    return yolo11_pose.load("yolo11n-pose", Weights("random", 0))[0]


def test_every_batch_is_right_to_a_thousandth_of_a_pixel_and_17_is_refused(yolo):
    manifest = json.loads(command("show", yolo, "--json").stdout)
    assert all(f["passed"] for f in manifest["findings"])
    (entry,) = manifest["methods"]
    assert entry["dims"][0]["sizes"] == [1, 2, 3, 7, 13, 16] and entry["capture"]["mode"] == "strict"
    numerics = [f["details"] for f in manifest["findings"] if f["check"] == "numerics"]
    assert len(numerics) == 7
    assert max(details[name]["max_abs"] for details in numerics for name in ("boxes", "keypoints")) <= 1e-3
    assert max(details[name]["max_abs"] for details in numerics for name in ("scores", "visibility")) <= 1e-5
    with pytest.raises(InputError, match="batch = 17.*takes 1 to 16"):
        edgeexport.open(yolo)["detect"](torch.zeros(17, 3, 640, 640))


def test_it_is_one_delegate_with_nothing_outside(yolo):
    delegation = edgeexport.open(yolo).artifact.methods["detect"].delegation
    assert delegation.delegates == 1 and delegation.outside == ()


def test_the_licence_is_in_the_manifest(yolo):
    assert edgeexport.open(yolo).manifest.model.source.licence == "AGPL-3.0"


def ultralytics_people(original, photo, confidence, iou, limit, monkeypatch):
    """Ultralytics' own model, suppression and scaling: boxes, scores, keypoints.

    Its letterbox has a fast test of its own.
    """
    from ultralytics.utils import nms, ops

    from edgeexport.pipelines.pose import Fit

    monkeypatch.delitem(sys.modules, "torchvision", raising=False)
    with torch.no_grad():
        raw = original(Fit.of(photo.size, 640).letterbox(photo, 114)[None])[0]
    (found,) = nms.non_max_suppression(raw, confidence, iou, nc=1, max_det=limit)
    shape = (photo.height, photo.width)
    return (
        ops.scale_boxes((640, 640), found[:, :4], shape),
        found[:, 4],
        ops.scale_coords((640, 640), found[:, 6:].reshape(-1, 17, 3), shape),
    )


def test_a_photo_gives_the_people_that_ultralytics_gives(yolo, photo, original, tmp_path, monkeypatch):
    options = ["--image", photo, "--confidence", "0.1", "--iou", "0.3", "--limit", "20"]
    done = command(
        "run", yolo, *options, "--overlay", tmp_path / "o.png", "--save", tmp_path / "o.json", "--json"
    )
    said = json.loads(done.stdout)
    assert json.loads((tmp_path / "o.json").read_text()) == said and "RANDOM" in said["caption"]
    assert Image.open(tmp_path / "o.png").width == 600
    boxes, scores, keypoints = ultralytics_people(
        original, Image.open(photo).convert("RGB"), 0.1, 0.3, 20, monkeypatch
    )
    assert len(said["people"]) == len(boxes) == 20
    same = 0
    for box, score, points in zip(boxes.numpy(), scores.tolist(), keypoints.numpy()):
        person = min(said["people"], key=lambda p: np.abs(np.array(p["box"]) - box).max())
        found = np.array(list(person["keypoints"].values()))
        same += (
            np.abs(np.array(person["box"]) - box).max() < 2e-3
            and abs(person["score"] - score) < 1e-5
            and np.abs(found[:, :2] - points[:, :2]).max() < 2e-3
            and np.abs(found[:, 2] - points[:, 2]).max() < 1e-4
        )
    # Random weights score many overlapping candidates within 1e-6: which of two is kept may fall to
    # rounding.
    assert same >= 18


def test_a_folder_of_frames_runs_in_one_batch(yolo, photo, tmp_path):
    whole = Image.open(photo)
    for index in range(5):
        whole.crop((20 * index, 10 * index, 20 * index + 333, 10 * index + 251)).save(
            tmp_path / f"{index}.png"
        )
    options = ["--confidence", "0.1", "--limit", "2", "--threads", "1", "--json"]
    together = json.loads(command("run", yolo, "--video", tmp_path, *options).stdout)
    alone = json.loads(command("run", yolo, "--image", tmp_path / "3.png", *options).stdout)
    assert together["frames"] == 5 and len(together["people"]) == 10
    for one, other in zip(alone["people"], [p for p in together["people"] if p["frame"] == 3]):
        assert one["box"] == pytest.approx(other["box"], abs=2e-3) and one["score"] == pytest.approx(
            other["score"], abs=1e-5
        )


def test_odd_photos_run(yolo, tmp_path):
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.new("RGB", (1, 1), "red").save(tmp_path / "0.png")
    Image.new("L", (700, 20)).save(tmp_path / "1.png")
    Image.new("RGBA", (64, 64)).save(tmp_path / "2.png")
    Image.new("RGB", (40, 20)).save(tmp_path / "3.jpg", exif=exif)
    said = json.loads(
        command("run", yolo, "--video", tmp_path, "--confidence", "0", "--limit", "5", "--json").stdout
    )
    for frame, size in enumerate([(1, 1), (700, 20), (64, 64), (20, 40)]):
        people = [p for p in said["people"] if p["frame"] == frame]
        assert len(people) == 5
        assert all(0 <= v <= limit for p in people for v, limit in zip(p["box"], 2 * size))


def test_wrong_input_exits_with_2(yolo, photo, tmp_path):
    (tmp_path / "not.jpg").write_bytes(b"x")
    for options in (
        ["--image", tmp_path / "not.jpg"],
        [],
        ["--image", photo, "--confidence", "2"],
        ["--image", photo, "--limit", "0"],
        ["--video", tmp_path / "none.mp4"],
    ):
        done = command("run", yolo, *options, check=False)
        assert done.returncode == 2 and "Traceback" not in done.stderr, done.stderr


def test_a_checkpoint_of_another_variant_exits_with_2_before_any_work(tmp_path):
    from edgeexport.models import yolo11_pose

    torch.save({"model": yolo11_pose._architecture("yolo11n-pose").half()}, tmp_path / "n.pt")
    done = command(
        "build", "yolo11s-pose", "--weights", tmp_path / "n.pt", "--out", tmp_path / "out", check=False
    )
    assert (
        done.returncode == 2 and "another model or variant" in done.stderr and "Traceback" not in done.stderr
    ), done.stderr
    assert not (tmp_path / "out").exists()
