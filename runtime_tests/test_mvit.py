"""MViT v1 base at full size, from the emitted file: batches, and videos."""

import json

import numpy as np
import pytest
import torch
from command_line import edgeexport as command
from PIL import Image

import edgeexport
from edgeexport.errors import InputError


def right_up_to(most, sizes, artifact):
    """Every finding of the build, the delegation, and one more than `most` refused."""
    manifest = json.loads(command("show", artifact, "--json").stdout)
    assert all(f["passed"] for f in manifest["findings"])
    (entry,) = manifest["methods"]
    assert entry["dims"][0]["sizes"] == sizes
    errors = [f["details"]["logits"]["max_abs"] for f in manifest["findings"] if f["check"] == "numerics"]
    assert len(errors) == len(sizes) + 1 and max(errors) <= 1e-4
    # A static program has at least one delegate; the dynamic one may have two more.
    assert entry["delegation"]["delegates"] <= 3
    with pytest.raises(InputError, match=f"batch = {most + 1}.*takes 1 to {most}"):
        edgeexport.open(artifact)["classify"](torch.zeros(most + 1, 3, 16, 224, 224))


def test_every_batch_is_right_and_4_is_refused(mvit):
    right_up_to(3, [1, 2, 3], mvit)


@pytest.mark.slow
def test_every_batch_to_16_is_right_and_17_is_refused(tmp_path):
    """Where other exporters' programs die: convolutions' backends guard a batch of 16
    (edgeexport/compiler/backend_guards.py).
    """
    command("build", "mvit", "--weights", "random", "--batch", "1:16", "--out", tmp_path / "mvit")
    right_up_to(16, [1, 2, 3, 7, 13, 16], tmp_path / "mvit")


@pytest.fixture(scope="module")
def video(tmp_path_factory):
    """Four seconds of a photograph that is panned over, as a real video file."""
    import av
    from skimage import data

    path = tmp_path_factory.mktemp("video") / "pan.mp4"
    photo = data.coffee()
    with av.open(str(path), "w") as container:
        stream = container.add_stream("mpeg4", rate=30)
        stream.width, stream.height, stream.pix_fmt = 320, 240, "yuv420p"
        for index in range(120):
            window = np.ascontiguousarray(photo[index : index + 240, 2 * index : 2 * index + 320])
            container.mux(stream.encode(av.VideoFrame.from_ndarray(window, format="rgb24")))
        container.mux(stream.encode())
    return path


def test_a_video_gives_five_classes_by_name_and_they_are_eagers(mvit, video):
    said = json.loads(command("run", mvit, "--video", video, "--clips", "3", "--json").stdout)
    assert said["frames"] == 30 and said["clips"] == 3 and len(said["top5"]) == 5

    from pathlib import Path

    from edgeexport.method import Weights
    from edgeexport.models import mvit as models
    from edgeexport.pipelines.video import clip_starts, clip_tensor, read_frames

    model = models.model("mvit-v1-b")
    frames = read_frames(Path(video), 7.5)
    clips = torch.cat(
        [clip_tensor(frames, start, model.prepare) for start in clip_starts(len(frames), 16, 3)]
    )
    with torch.no_grad():
        best = models.load("mvit-v1-b", Weights("random", 0))[0](clips).softmax(-1).mean(0).topk(5)
    assert [c["label"] for c in said["top5"]] == [model.prepare["labels"][i] for i in best.indices.tolist()]
    assert [c["probability"] for c in said["top5"]] == pytest.approx(best.values.tolist(), abs=1e-5)


def test_a_folder_of_frames_does_too(mvit, tmp_path):
    for index in range(20):
        Image.new("RGB", (340, 256), (12 * index, 40, 90)).save(tmp_path / f"{index:03}.png")
    said = json.loads(
        command("run", mvit, "--video", tmp_path, "--clips", "1", "--threads", "1", "--json").stdout
    )
    assert said["frames"] == 20 and said["clips"] == 1 and sum(c["probability"] for c in said["top5"]) <= 1.0
