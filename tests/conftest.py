"""Shared fixtures: toy artifacts that are built once.

EDGEEXPORT_TEST_CACHE is a folder to keep them in for the next time; they are built again where the
package, the toy, the options or the versions are others.
"""

import hashlib
import os
import platform
import shutil
import sys
import tempfile
from importlib import metadata
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ["XDG_STATE_HOME"] = str(Path(tempfile.gettempdir()) / "edgeexport-tests")  # logs of commands

TOY = f"{Path(__file__).parent / 'toy.py'}:MODEL"
TOY_TEXT = f"{Path(__file__).parent / 'toy_text.py'}:MODEL"


LONGEST_FIRST = (
    "test_serve",
    "test_bench",
    "test_mobile_android",
    "test_mobile_cpp",
    "test_aoti",
    "test_report",
    "test_remote",
    "test_parity",
    "test_build",
    "test_profile",
    "test_mvit",
    "test_boards",
    "test_native",
    "test_yolo11_pose",
)
"""Files that take a minute or so: begun last, one of them would keep a single process busy."""


@pytest.hookimpl(tryfirst=True)  # before pytest-xdist reads the mark
def pytest_collection_modifyitems(items):
    """All tests of one file run in one process of pytest-xdist, which has its fixtures."""
    for item in items:
        item.add_marker(pytest.mark.xdist_group(item.path.stem))
    order = {name: place for place, name in enumerate(LONGEST_FIRST)}
    items.sort(key=lambda item: order.get(item.path.stem, len(order)))


def built_once(tmp_path_factory, name, model, targets, **options):
    """The artifacts of `model`, one a target, built once for all processes of pytest-xdist; tests
    must not change them.
    """
    from filelock import FileLock

    from edgeexport.artifact.folder import open_artifact
    from edgeexport.build import build_targets

    kept = os.environ.get("EDGEEXPORT_TEST_CACHE")
    folder = (
        Path(kept) / f"{name}-{_recipe_digest(model, targets, options)}"
        if kept
        else shared_folder(tmp_path_factory) / name
    )
    folder.parent.mkdir(parents=True, exist_ok=True)
    outs = [folder / target for target in targets]
    with FileLock(f"{folder}.lock"):
        if not outs[-1].is_dir():
            shutil.rmtree(folder, ignore_errors=True)  # of a run that was interrupted
            build_targets(model, targets=targets, weights="random", outs=outs, **options)
    return tuple(map(open_artifact, outs))


def _recipe_digest(model, targets, options):
    """A digest of all that an artifact is made of: the package, the model's file, what is asked
    for, and what it runs on.
    """
    versions = [metadata.version(name) for name in ("torch", "executorch", "torchvision", "transformers")]
    said = repr((model, targets, sorted(options.items()), versions, sys.version, platform.machine()))
    digest = hashlib.sha256(said.encode())
    package = Path(__file__).parents[1] / "edgeexport"
    files = [file for file in package.rglob("*") if file.is_file() and "__pycache__" not in file.parts]
    for file in (*sorted(files), Path(model.rpartition(":")[0])):
        digest.update(f"{file} {file.stat().st_size}\n".encode() + file.read_bytes())
    return digest.hexdigest()[:16]


def shared_folder(tmp_path_factory):
    """The folder of this call of pytest, the same for all processes of pytest-xdist."""
    base = tmp_path_factory.getbasetemp()
    return base.parent if "PYTEST_XDIST_WORKER" in os.environ else base


@pytest.fixture(scope="session", autouse=True)
def warm_children(tmp_path_factory):
    """Children of the package begin with everything imported, see tests/warm_children.py; the real
    interpreter, or None where they do not.
    """
    if os.environ.get("EDGEEXPORT_TEST_CHILDREN") == "cold" or not hasattr(os, "pidfd_open"):
        yield None
        return
    real, client = Path(sys.executable), Path(__file__).with_name("warm_children.py")
    session = os.getppid() if "PYTEST_XDIST_WORKER" in os.environ else os.getpid()
    folder = shared_folder(tmp_path_factory) / "children"
    python = folder / str(os.getpid()) / "python"
    python.parent.mkdir(parents=True)
    python.write_text(f'#!/bin/sh\nexec "{real}" -IS "{client}" "{real}" "{folder}" {session} "$@"\n')
    python.chmod(0o755)
    for tool in ("cmake", "ctest"):  # they are looked for beside the interpreter
        if real.with_name(tool).exists():
            python.with_name(tool).symlink_to(real.with_name(tool))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "executable", str(python))
        yield real


@pytest.fixture(scope="session")
def toy_artifact(tmp_path_factory):
    """The toy model, built for batch 1..17."""
    return built_once(tmp_path_factory, "toy", TOY, ("xnnpack",))[0]


@pytest.fixture
def toy_copy(toy_artifact, tmp_path):
    """A copy of the toy artifact's folder, to damage."""
    return Path(shutil.copytree(toy_artifact.path, tmp_path / "toy"))


@pytest.fixture(scope="session")
def toy_both(tmp_path_factory):
    """The toy model for phone and server, batch 1..3."""
    return built_once(tmp_path_factory, "toy-both", TOY, ("xnnpack", "aoti"), batch="1:3")


@pytest.fixture(scope="session")
def text_both(tmp_path_factory):
    """The toy that writes, for phone and server."""
    return built_once(tmp_path_factory, "text-both", TOY_TEXT, ("xnnpack", "aoti"))
