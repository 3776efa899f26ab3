"""The real models, built once a session by the command a user types, or taken from EDGEEXPORT_ARTIFACTS/<model>."""

import os
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from command_line import edgeexport  # noqa: E402


def built(tmp_path_factory, model, *options, weights="random"):
    """The folder of an artifact."""
    ready = Path(os.environ.get("EDGEEXPORT_ARTIFACTS", "/nonexistent")) / model
    if ready.is_dir():
        return ready
    out = tmp_path_factory.mktemp("artifacts") / model
    print(edgeexport("build", model, "--target", "xnnpack", "--weights", weights, "--out", out, *options).stdout)
    return out


@pytest.fixture(scope="session")
def sam2(tmp_path_factory):
    return built(tmp_path_factory, "sam2")


@pytest.fixture(scope="session")
def edgetam(tmp_path_factory):
    return built(tmp_path_factory, "edgetam")


@pytest.fixture(scope="session")
def mvit(tmp_path_factory):
    return built(tmp_path_factory, "mvit", "--batch", "1:16")


@pytest.fixture(scope="session")
def whisper(tmp_path_factory):
    """Whisper tiny.en with its real weights."""
    from clips import TINY_EN

    return built(tmp_path_factory, "whisper-tiny.en", weights=TINY_EN)


@pytest.fixture(scope="session")
def blip(tmp_path_factory):
    return built(tmp_path_factory, "blip")


@pytest.fixture(scope="session")
def yolo(tmp_path_factory):
    return built(tmp_path_factory, "yolo11n-pose", "--batch", "1:16")


@pytest.fixture(scope="session")
def photo(tmp_path_factory):
    """A photograph that scikit-image ships."""
    from PIL import Image
    from skimage import data

    path = tmp_path_factory.mktemp("photos") / "coffee.jpg"
    Image.fromarray(data.coffee()).save(path)
    return path
