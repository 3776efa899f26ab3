"""Shared fixtures: a toy artifact that is built once."""

import os
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
os.environ.setdefault("HF_HUB_OFFLINE", "1")

TOY = f"{Path(__file__).parent / 'toy.py'}:MODEL"
TOY_TEXT = f"{Path(__file__).parent / 'toy_text.py'}:MODEL"


@pytest.fixture(scope="session")
def toy_artifact(tmp_path_factory):
    """The toy model, built for batch 1..17; tests must not change it."""
    import edgeexport

    out = tmp_path_factory.mktemp("build") / "toy"
    return edgeexport.build(TOY, weights="random", out=out)


@pytest.fixture
def toy_copy(toy_artifact, tmp_path):
    """A copy of the toy artifact's folder, to damage."""
    import shutil

    return Path(shutil.copytree(toy_artifact.path, tmp_path / "toy"))


def both(model, folder, **options):
    """The `.pte` and the `.pt2` of one build."""
    from edgeexport.build import build_targets

    return build_targets(model, targets=("xnnpack", "aoti"), weights="random", outs=(folder / "edge", folder / "server"), **options)


@pytest.fixture(scope="session")
def toy_both(tmp_path_factory):
    """The toy model for phone and server, batch 1..3."""
    return both(TOY, tmp_path_factory.mktemp("toy-both"), batch="1:3")


@pytest.fixture(scope="session")
def text_both(tmp_path_factory):
    """The toy that writes, for phone and server."""
    return both(TOY_TEXT, tmp_path_factory.mktemp("text-both"))
