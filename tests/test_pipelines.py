"""Photos, clicks, videos: right where they are odd, refused where they are wrong."""

import numpy as np
import pytest
from PIL import Image

from edgeexport.errors import InputError
from edgeexport.pipelines.media.photos import draw_overlay, read_photo, to_tensor, write_png
from edgeexport.pipelines.segmentation import prompts
from edgeexport.pipelines.video import clip_starts, clip_tensor, read_frames

FACTS = {
    "frames": 16,
    "frames_per_second": 7.5,
    "resize_short_side": 256,
    "crop": 224,
    "mean": [0.45] * 3,
    "std": [0.225] * 3,
}


def saved(tmp_path, image, name="p.png", **options):
    image.save(tmp_path / name, **options)
    return tmp_path / name


@pytest.mark.parametrize("mode", ["RGB", "L", "RGBA", "LA", "P", "1", "CMYK", "I;16"])
def test_photos_of_every_mode_become_rgb(tmp_path, mode):
    name = "p.tiff" if mode == "CMYK" else "p.png"
    image = Image.new(mode, (5, 3))
    assert read_photo(saved(tmp_path, image, name)).mode == "RGB"


def test_exif_rotation_is_followed(tmp_path):
    exif = Image.Exif()
    exif[0x0112] = 6
    path = saved(tmp_path, Image.new("RGB", (40, 20)), "p.jpg", exif=exif)
    assert read_photo(path).size == (20, 40)


def test_what_is_not_an_image_is_refused(tmp_path):
    (tmp_path / "a.jpg").write_bytes(b"not an image")
    whole = saved(
        tmp_path,
        Image.fromarray(np.random.default_rng(0).integers(0, 255, (64, 64, 3), dtype=np.uint8)),
        "whole.png",
    )
    (tmp_path / "cut.png").write_bytes(whole.read_bytes()[:2000])
    for name in ("a.jpg", "cut.png"):
        with pytest.raises(InputError, match="not an image that can be read"):
            read_photo(tmp_path / name)
    with pytest.raises(InputError, match="no image file"):
        read_photo(tmp_path / "none.png")


@pytest.mark.parametrize("size", [(1, 1), (3000, 2), (640, 480)])
def test_every_size_becomes_a_contiguous_tensor(size):
    tensor = to_tensor(Image.new("RGB", size, "white"), 64, 32, (0.5,) * 3, (0.5,) * 3)
    assert (
        tensor.shape == (1, 3, 32, 64)
        and tensor.is_contiguous()
        and float(tensor.min()) == pytest.approx(1.0)
    )


def test_prompts():
    points, labels = prompts(("10,20", "30,40,0"), ("1,2,50,60",), (100, 100))
    assert points == [(1, 2), (50, 60), (10, 20), (30, 40)] and labels == [2, 3, 1, 0]


@pytest.mark.parametrize(
    ("point", "box", "said"),
    [
        (("x,y",), (), "320,240"),
        (("1",), (), "320,240"),
        (("1,2,7",), (), "label"),
        (("200,1",), (), "outside the photo of 100 x 100"),
        ((), ("5,5,5,9",), "empty"),
        ((), ("1,2,3",), "not a box"),
        ((), (), "at least one --point"),
        (("nan,1",), (), "outside"),
    ],
)
def test_wrong_prompts_are_refused(point, box, said):
    with pytest.raises(InputError, match=said):
        prompts(point, box, (100, 100))


def test_the_overlay_shows_mask_click_and_caption(tmp_path):
    mask = np.zeros((60, 80), dtype=bool)
    mask[10:30, 10:40] = True
    drawn = draw_overlay(Image.new("RGB", (80, 60), "red"), mask, [(60.0, 50.0)], [1], "caption")
    pixels = np.asarray(drawn)
    assert drawn.width == 80 and drawn.height > 60
    assert (
        pixels[20, 20, 2] > 100
        and tuple(pixels[5, 5]) == (255, 0, 0)
        and tuple(pixels[50, 60]) == (0, 255, 0)
    )
    assert pixels[62:].max() > 200, "the caption is there"
    write_png(drawn, tmp_path / "new folder" / "o.png")


def test_clips_are_even_and_short_videos_are_stretched():
    assert clip_starts(16, 16, 3) == [0] and clip_starts(5, 16, 3) == [0]
    assert (
        clip_starts(48, 16, 3) == [0, 16, 32]
        and clip_starts(17, 16, 5) == [0, 1]
        and clip_starts(48, 16, 1) == [16]
    )
    frames = [Image.new("RGB", (300, 280), (10 * i, 0, 0)) for i in range(5)]
    clip = clip_tensor(frames, 0, FACTS)
    assert clip.shape == (1, 3, 16, 224, 224) and clip.is_contiguous()
    reds = clip[0, 0, :, 0, 0].tolist()
    assert reds == sorted(reds) and reds[0] < reds[-1]


def write_video(path, frames, rate=30):
    import av

    with av.open(str(path), "w") as container:
        stream = container.add_stream("mpeg4", rate=rate)
        stream.width, stream.height, stream.pix_fmt = 64, 48, "yuv420p"
        for index in range(frames):
            array = np.full((48, 64, 3), 2 * index, dtype=np.uint8)
            container.mux(stream.encode(av.VideoFrame.from_ndarray(array, format="rgb24")))
        container.mux(stream.encode())


def test_a_video_is_read_at_the_models_rate(tmp_path):
    write_video(tmp_path / "v.mp4", 60)
    frames = read_frames(tmp_path / "v.mp4", 7.5)
    assert len(frames) == 15, "two seconds at 7.5 frames a second"
    assert np.asarray(frames[-1]).mean() > np.asarray(frames[0]).mean() + 50


def test_wrong_videos_are_refused(tmp_path):
    (tmp_path / "a.mp4").write_bytes(b"not a video")
    with pytest.raises(InputError, match="not a video"):
        read_frames(tmp_path / "a.mp4", 7.5)
    with pytest.raises(InputError, match="no video file"):
        read_frames(tmp_path / "none.mp4", 7.5)
    (tmp_path / "folder").mkdir()
    with pytest.raises(InputError, match="holds no frames"):
        read_frames(tmp_path / "folder", 7.5)
