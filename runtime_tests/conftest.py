"""The real models, built once a session for phone and server by the command a user types;
EDGEEXPORT_ARTIFACTS is a folder to keep them in.

Tests of a model at full size are marked `full`, but for those of ONE_OF_FULL_SIZE.
"""

import os
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

from clips import TINY_EN  # noqa: E402
from command_line import edgeexport  # noqa: E402
from reference import MODELS  # noqa: E402


def built(tmp_path_factory, model, *options, weights="random"):
    """The folder of the `.pte`; `server_of` is that of the `.pt2` of the same build."""
    out = Path(os.environ.get("EDGEEXPORT_ARTIFACTS") or tmp_path_factory.mktemp("artifacts")) / model
    if not out.is_dir():
        targets = ("--target", "xnnpack", "--out", out / "edge", "--target", "aoti", "--out", out / "server")
        print(edgeexport("build", model, *targets, "--weights", weights, *options).stdout)
    return out / "edge"


FULL_SIZE = ("mvit", "blip", "whisper", "sam2", "edgetam", "yolo")
LONGEST_FIRST = (*FULL_SIZE, "micro_captioner", "micro")
ONE_OF_FULL_SIZE = "yolo"
"""The quickest to build of those with a dynamic batch, a delegate in one piece, pictures and films,
and a pipeline with post-processing.
"""


@pytest.hookimpl(tryfirst=True)  # before pytest-xdist reads the mark
def pytest_collection_modifyitems(items):
    """All tests of one model run in one process of pytest-xdist, which builds it; those without a
    model by file.
    """

    def group(item):
        used = {
            *item.fixturenames,
            *map(str, getattr(item, "callspec", None) and item.callspec.params.values() or ()),
        }
        return next((model for model in LONGEST_FIRST if model in used), item.path.stem)

    for item in items:
        item.add_marker(pytest.mark.xdist_group(group(item)))
        if group(item) in FULL_SIZE and group(item) != ONE_OF_FULL_SIZE:
            item.add_marker(pytest.mark.full)
    items.sort(key=lambda item: (*LONGEST_FIRST, group(item)).index(group(item)))


def server_of(edge):
    return edge.parent / "server"


def _model(name, *options, weights="random"):
    @pytest.fixture(scope="session")
    def fixture(tmp_path_factory):
        return built(tmp_path_factory, name, *options, weights=weights)

    return fixture


sam2 = _model(MODELS["sam2"])
edgetam = _model(MODELS["edgetam"])
mvit = _model(MODELS["mvit"], "--batch", "1:3")  # a clip takes seconds; up to 16 in a slow test
whisper = _model(MODELS["whisper"], weights=TINY_EN)  # the real weights
blip = _model(MODELS["blip"])
yolo = _model(MODELS["yolo"], "--batch", "1:16")


def _micro(name, file, precision="fp32"):
    """A micro model with learned weights, built for the phone as a user's own model is."""

    @pytest.fixture(scope="session")
    def fixture(tmp_path_factory):
        root = os.environ.get("EDGEEXPORT_ARTIFACTS") or tmp_path_factory.mktemp("artifacts")
        out = Path(root) / name / ("edge" if precision == "fp32" else f"edge-{precision}")
        if not out.is_dir():
            model, weights = f"{HERE / f'micro_{file}.py'}:MODEL", HERE / "micro" / f"{file}.safetensors"
            options = ("--target", "xnnpack", "--precision", precision, "--weights", weights, "--out", out)
            edgeexport("build", model, *options, *(("--batch", "1:16") if file == "mvit" else ()))
        return out

    return fixture


micro = _micro(MODELS["micro"], "mvit")
micro_captioner = _micro("micro-blip", "blip")
micro_int8 = _micro(MODELS["micro"], "mvit", "int8")
micro_captioner_int8 = _micro("micro-blip", "blip", "int8")


@pytest.fixture(scope="session")
def photo(tmp_path_factory):
    """A photograph that scikit-image ships."""
    from PIL import Image
    from skimage import data

    path = tmp_path_factory.mktemp("photos") / "coffee.jpg"
    Image.fromarray(data.coffee()).save(path)
    return path
