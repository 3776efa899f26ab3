"""Shared fixtures: a toy artifact that is built once."""

import os
import sys
import tempfile
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ["XDG_STATE_HOME"] = str(Path(tempfile.gettempdir()) / "edgeexport-tests")  # logs of commands

TOY = f"{Path(__file__).parent / 'toy.py'}:MODEL"
TOY_TEXT = f"{Path(__file__).parent / 'toy_text.py'}:MODEL"


def built_once(tmp_path_factory, name, model, targets, **options):
    """The artifacts of `model`, one a target, built once for all processes of pytest-xdist; tests
    must not change them.
    """
    from filelock import FileLock

    from edgeexport.artifact.folder import open_artifact
    from edgeexport.build import build_targets

    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / name
    outs = [folder / target for target in targets]
    with FileLock(f"{folder}.lock"):
        if not outs[-1].is_dir():
            build_targets(model, targets=targets, weights="random", outs=outs, **options)
    return tuple(map(open_artifact, outs))


@pytest.fixture(scope="session")
def toy_artifact(tmp_path_factory):
    """The toy model, built for batch 1..17."""
    return built_once(tmp_path_factory, "toy", TOY, ("xnnpack",))[0]


@pytest.fixture
def toy_copy(toy_artifact, tmp_path):
    """A copy of the toy artifact's folder, to damage."""
    import shutil

    return Path(shutil.copytree(toy_artifact.path, tmp_path / "toy"))


@pytest.fixture(scope="session")
def toy_both(tmp_path_factory):
    """The toy model for phone and server, batch 1..3."""
    return built_once(tmp_path_factory, "toy-both", TOY, ("xnnpack", "aoti"), batch="1:3")


@pytest.fixture(scope="session")
def text_both(tmp_path_factory):
    """The toy that writes, for phone and server."""
    return built_once(tmp_path_factory, "text-both", TOY_TEXT, ("xnnpack", "aoti"))
