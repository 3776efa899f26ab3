"""Photos and videos to people: letterbox, suppression and scaling as Ultralytics does them, and
what is refused.
"""

import json
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from manifests import manifest_of
from PIL import Image

from edgeexport.errors import InputError
from edgeexport.method import Dim
from edgeexport.models.yolo11_pose import model
from edgeexport.pipelines import pose
from edgeexport.pipelines.media.photos import read_photo

PREPARE = dict(model("yolo11n-pose").prepare)
SIZES = [None, (333, 517), (1281, 31), (640, 640), (2, 3000), (1, 1), (639, 641)]  # None: the photo's own


@pytest.fixture(params=["bus.jpg", "zidane.jpg"], scope="module")
def real(request):
    import ultralytics

    return read_photo(Path(ultralytics.__file__).parent / "assets" / request.param)


@pytest.mark.parametrize("size", SIZES, ids=str)
def test_the_letterbox_is_that_of_ultralytics(real, size):
    from ultralytics.data.augment import LetterBox

    photo = real if size is None else real.resize(size)
    want = LetterBox((640, 640), auto=False)(image=np.asarray(photo)) / 255.0
    got = pose.Fit.of(photo.size, 640).letterbox(photo, 114)
    assert got.shape == (3, 640, 640) and got.dtype == torch.float32 and got.is_contiguous()
    # OpenCV and PyTorch interpolate bytes with other fixed points: at most one level apart.
    difference = np.abs(got.permute(1, 2, 0).numpy() - want) * 255
    assert difference.max() <= 1.01 and difference.mean() < 0.25


def answers(seed, candidates=600):
    """What a head could say: clusters of overlapping boxes, many over the border of the square,
    scores all different.
    """
    generator = np.random.default_rng(seed)
    centres = generator.uniform(-40, 680, (60, 2)).repeat(candidates // 60, 0) + generator.normal(
        0, 8, (candidates, 2)
    )
    sizes = generator.uniform(10, 300, (60, 2)).repeat(candidates // 60, 0) * generator.uniform(
        0.8, 1.2, (candidates, 2)
    )
    boxes = np.concatenate([centres - sizes / 2, centres + sizes / 2], 1).astype(np.float32)
    scores = generator.permutation(np.linspace(0.01, 0.99, candidates)).astype(np.float32)
    keypoints = (centres[:, None] + generator.normal(0, 0.4, (candidates, 17, 2)) * sizes[:, None]).astype(
        np.float32
    )
    return boxes, scores, keypoints, generator.uniform(0, 1, (candidates, 17)).astype(np.float32)


def ultralytics_people(monkeypatch, said, size, confidence, iou, limit):
    """Ultralytics' own steps after the model: [n,4] boxes, [n] scores, [n,17,3] keypoints."""
    from ultralytics.utils import nms, ops

    monkeypatch.delitem(
        sys.modules, "torchvision", raising=False
    )  # its nms may not fit this torch; Ultralytics has one of its own
    boxes, scores, keypoints, visibility = map(torch.from_numpy, said)
    sizes = boxes[:, 2:] - boxes[:, :2]
    points = torch.cat([keypoints, visibility[..., None]], -1).flatten(1)
    raw = torch.cat([boxes[:, :2] + sizes / 2, sizes, scores[:, None], points], 1).t()[None]
    (found,) = nms.non_max_suppression(raw, confidence, iou, nc=1, max_det=limit)
    shape = (size[1], size[0])
    scaled = ops.scale_boxes((640, 640), found[:, :4].clone(), shape)
    return scaled, found[:, 4], ops.scale_coords((640, 640), found[:, 6:].reshape(-1, 17, 3).clone(), shape)


@pytest.mark.parametrize(
    "size", [(810, 1080), (1280, 720), (333, 517), (1281, 31), (640, 640), (1, 1), (639, 641)], ids=str
)
@pytest.mark.parametrize("limits", [(0.25, 0.7, 300), (0.6, 0.3, 300), (0.0, 1.0, 40)], ids=str)
def test_people_are_those_of_ultralytics(monkeypatch, size, limits):
    said = answers(len(str(size)))
    boxes, scores, keypoints = ultralytics_people(monkeypatch, said, size, *limits)
    people = pose.people_of(said, pose.Fit.of(size, 640), *limits)
    assert len(people) == len(boxes) > 20
    assert [p.score for p in people] == scores.tolist()
    scale = max(1.0, max(size) / 640)
    assert np.abs(np.stack([p.box for p in people]) - boxes.numpy()).max() <= 2e-4 * scale
    assert np.abs(np.stack([p.keypoints for p in people]) - keypoints[..., :2].numpy()).max() <= 2e-4 * scale
    assert np.array_equal(np.stack([p.visibility for p in people]), keypoints[..., 2].numpy())
    inside = np.stack([p.box for p in people])
    assert inside.min() >= 0 and (inside <= [*size, *size]).all()


def test_suppression_on_known_boxes():
    boxes = np.array([[0, 0, 10, 10], [0, 0, 10, 5], [20, 0, 30, 10], [0, 0, 10, 10]], dtype=np.float32)
    scores = np.array([0.5, 0.9, 0.7, 0.6], dtype=np.float32)
    assert pose.suppress(boxes, scores, 0.5, 10).tolist() == [1, 2, 3], (
        "exactly half shared is not more than half"
    )
    assert pose.suppress(boxes, scores, 0.4, 10).tolist() == [1, 2]
    assert pose.suppress(boxes, scores, 1.0, 2).tolist() == [1, 2]
    assert pose.suppress(boxes[:0], scores[:0], 0.5, 10).tolist() == []


class Canned:
    """Stands for an opened program: answers the same people for every image, and notes what it was
    given.
    """

    def __init__(self, dims=Dim("batch", 1, 4), source="random"):
        self.manifest = manifest_of(
            json.loads(json.dumps(PREPARE)),
            name="yolo11n-pose",
            source=source,
            seed=3,
            origin="Ultralytics' yolo11n-pose.pt",
        )
        self.batches = []
        self.method = SimpleNamespace(dims={"batch": dims})

    def __getitem__(self, name):
        assert name == "detect"

        def method(images):
            assert images.is_contiguous() and images.dtype == torch.float32
            self.batches.append(images)
            people = [torch.zeros(len(images), 8400, *s) for s in ((4,), (), (17, 2), (17,))]
            people[0][:, :2] = torch.tensor([[160.0, 200.0, 320.0, 400.0], [170.0, 210.0, 320.0, 400.0]])
            people[1][:, :2] = torch.tensor([0.9, 0.8])
            people[2][:, :2] = torch.linspace(200, 360, 17)[:, None]
            people[3][:, :2] = torch.linspace(0, 1, 17)
            return people

        method.dims = self.method.dims
        return method


def saved(tmp_path, image, name="p.png", **options):
    image.save(tmp_path / name, **options)
    return str(tmp_path / name)


def test_a_photo_gives_people_an_overlay_and_json(tmp_path):
    path = saved(tmp_path, Image.new("RGB", (1280, 960), "grey"))
    said = pose.run(
        Canned(), image=path, overlay=str(tmp_path / "a" / "o.png"), save=str(tmp_path / "b" / "o.json")
    )
    (person,) = said["people"]
    # 1280 x 960 is scaled by 0.5 and lies 80 rows down.
    assert person["box"] == [320.0, 240.0, 640.0, 640.0] and person["score"] == pytest.approx(0.9)
    assert list(person["keypoints"]) == list(PREPARE["keypoints"]) and person["keypoints"]["nose"] == [
        400.0,
        240.0,
        0.0,
    ]
    assert json.loads((tmp_path / "b" / "o.json").read_text()) == said
    assert "1 people" in said["caption"] and "RANDOM weights, seed 3" in said["caption"]
    drawn = np.asarray(Image.open(tmp_path / "a" / "o.png"))
    assert drawn.shape[0] > 960 and tuple(drawn[400, 320]) == (0, 191, 255), "the box's left side"
    right_ankle = [round(v) for v in person["keypoints"]["right ankle"][:2]]
    assert tuple(drawn[right_ankle[1], right_ankle[0]]) == (255, 165, 0)
    hidden = [round(v) for v in person["keypoints"]["left shoulder"][:2]]
    assert tuple(drawn[hidden[1], hidden[0]]) == (128, 128, 128), "what is hardly visible is not drawn"


def test_the_caption_names_real_weights(tmp_path):
    said = pose.run(Canned(source="pretrained"), image=saved(tmp_path, Image.new("RGB", (8, 8))))
    assert "(Ultralytics' yolo11n-pose.pt)" in said["caption"]


def test_confidence_and_limit_choose(tmp_path):
    path = saved(tmp_path, Image.new("RGB", (640, 640)))
    assert len(pose.run(Canned(), image=path, iou="1")["people"]) == 2
    assert len(pose.run(Canned(), image=path, iou="1", limit=1)["people"]) == 1
    assert pose.run(Canned(), image=path, confidence="0.95")["people"] == []


@pytest.mark.parametrize("mode", ["L", "RGBA", "P", "1", "I;16"])
def test_photos_of_other_modes(tmp_path, mode):
    assert len(pose.run(Canned(), image=saved(tmp_path, Image.new(mode, (50, 30))))["people"]) == 1


def test_a_turned_photo_is_looked_at_upright(tmp_path):
    exif = Image.Exif()
    exif[0x0112] = 6
    program = Canned()
    path = saved(tmp_path, Image.new("RGB", (640, 320), "white"), "p.jpg", exif=exif)
    pose.run(program, image=path)
    seen = program.batches[0][0, 0]
    assert seen[320, 10] < 0.5 and seen[10, 320] > 0.9, "upright, the bars are left and right"


def test_a_photo_of_one_pixel_fills_the_square(tmp_path):
    program = Canned()
    said = pose.run(program, image=saved(tmp_path, Image.new("RGB", (1, 1), (0, 255, 0))))
    assert torch.equal(program.batches[0][0].amax((1, 2)), torch.tensor([0.0, 1.0, 0.0]))
    assert max(said["people"][0]["box"]) <= 1.0


@pytest.mark.parametrize(
    ("dims", "sizes"),
    [(Dim("batch", 1, 4), [4, 3]), (Dim("batch", 3, 5), [5, 3]), (Dim("batch", 1, 1), [1] * 7)],
)
def test_a_folder_of_frames_is_taken_in_batches(tmp_path, dims, sizes):
    for index in range(7):
        Image.new("RGB", (64, 48), (30 * index, 0, 0)).save(tmp_path / f"{index}.png")
    program = Canned(dims)
    said = pose.run(program, video=str(tmp_path), overlay=str(tmp_path / "out"))
    assert [len(b) for b in program.batches] == sizes
    assert said["frames"] == 7 and [p["frame"] for p in said["people"]] == list(range(7))
    assert len(list((tmp_path / "out").glob("*.png"))) == 7
    reds = torch.cat(program.batches)[:7, 0, 320, 320]
    assert torch.equal(reds, torch.arange(7) * 30 / 255.0)


def test_a_video_is_read_at_the_rate(tmp_path):
    import av

    with av.open(str(tmp_path / "v.mp4"), "w") as container:
        stream = container.add_stream("mpeg4", rate=30)
        stream.width, stream.height, stream.pix_fmt = 64, 48, "yuv420p"
        for index in range(60):
            container.mux(
                stream.encode(
                    av.VideoFrame.from_ndarray(
                        np.full((48, 64, 3), 2 * index, dtype=np.uint8), format="rgb24"
                    )
                )
            )
        container.mux(stream.encode())
    assert pose.run(Canned(), video=str(tmp_path / "v.mp4"), rate=3)["frames"] == 6


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, "Give one of"),
        ({"image": "a", "video": "b"}, "Give one of"),
        ({"image": "p.png", "confidence": "high"}, "--confidence"),
        ({"image": "p.png", "iou": "1.5"}, "--iou"),
        ({"image": "p.png", "confidence": "nan"}, "--confidence"),
        ({"image": "p.png", "limit": 0}, "at least 1"),
        ({"video": ".", "rate": 0}, "at least 1"),
        ({"image": "none.png"}, "no image file"),
        ({"video": "none.mp4"}, "no video file"),
        ({"image": "text.png"}, "not an image"),
    ],
)
def test_wrong_use_is_refused(tmp_path, monkeypatch, options, said):
    monkeypatch.chdir(tmp_path)
    saved(tmp_path, Image.new("RGB", (8, 8)))
    (tmp_path / "text.png").write_text("not an image")
    program = Canned()
    with pytest.raises(InputError, match=said):
        pose.run(program, **options)
    assert program.batches == []
