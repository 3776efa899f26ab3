"""The folder: written whole or not at all, never over something else, verified before anything is
loaded.
"""

import errno
import json
import os
import shutil
import sys

import pytest
from in_process import run_command as run

import edgeexport
from edgeexport.artifact.folder import MANIFEST, open_artifact, staged
from edgeexport.artifact.manifest import DimEntry
from edgeexport.errors import ArtifactError


def test_opening_verifies_and_describes(toy_artifact):
    opened = open_artifact(toy_artifact.path)
    entry = opened.methods["classify"]
    assert entry.dims == (DimEntry("batch", (1, 17), (1, 17), (1, 2, 3, 7, 13, 17)),)
    assert entry.capture.mode == "strict" and entry.inputs[0].layout == "contiguous"
    assert entry.planned_memory_bytes > 0 and entry.delegation.delegates >= 1
    assert opened.manifest.weights.sha256 and opened.manifest.versions["torch"].startswith("2.13")
    assert all(f.passed for f in opened.manifest.findings)
    assert opened.manifest.timings.peak_rss_bytes > 1e6 and opened.manifest.timings.check_peak_rss_bytes > 1e6


@pytest.mark.parametrize("where", [0, 1000, -1])
def test_a_changed_byte_is_refused(toy_copy, where):
    program = toy_copy / "toy.pte"
    data = bytearray(program.read_bytes())
    data[where] ^= 1
    program.write_bytes(data)
    with pytest.raises(ArtifactError, match="was changed after it was built.*build it again"):
        edgeexport.open(toy_copy)


def test_a_short_missing_or_foreign_file_is_refused(toy_copy, tmp_path):
    program = toy_copy / "toy.pte"
    program.write_bytes(program.read_bytes()[:-10])
    with pytest.raises(ArtifactError, match="cut short"):
        edgeexport.open(toy_copy)
    program.unlink()
    with pytest.raises(ArtifactError, match="missing"):
        edgeexport.open(toy_copy)
    with pytest.raises(ArtifactError, match="not an artifact"):
        edgeexport.open(tmp_path / "nowhere")


@pytest.mark.parametrize(
    ("change", "place"),
    [
        (lambda m: m.pop("methods"), "methods"),
        (lambda m: m.update(format=99), "format"),
        (lambda m: m["methods"][0]["inputs"][0].update(layout="channels_last"), "layout"),
        (lambda m: m["weights"].update(sha256="abc"), "sha256"),
        (lambda m: m["files"].pop("toy.pte"), "records no hash of toy.pte"),
        (lambda m: m["methods"][0]["inputs"][0].update(sample={"kind": "of later"}), "of later"),
        (lambda m: m["methods"][0]["inputs"][0]["sample"].update(later=1), "later"),
        (lambda m: m.update(program="other.pte"), "records no hash of other.pte"),
    ],
)
def test_a_manifest_off_its_schema_is_refused_with_the_place(toy_copy, change, place):
    manifest = json.loads((toy_copy / MANIFEST).read_text())
    change(manifest)
    (toy_copy / MANIFEST).write_text(json.dumps(manifest))
    with pytest.raises(ArtifactError, match=place):
        edgeexport.open(toy_copy)


def test_a_damaged_manifest_is_refused(toy_copy):
    (toy_copy / MANIFEST).write_text("{")
    with pytest.raises(ArtifactError, match="damaged"):
        edgeexport.open(toy_copy)


def leftovers(folder):
    return [p.name for p in folder.iterdir() if ".partial-" in p.name or ".old-" in p.name]


def test_nothing_is_overwritten_without_force(toy_copy, tmp_path):
    with pytest.raises(ArtifactError, match="--force"), staged(toy_copy, force=False):
        raise AssertionError("work was begun")
    other = tmp_path / "holiday-photos"
    other.mkdir()
    (other / "a.jpg").write_text("x")
    with pytest.raises(ArtifactError, match="not an artifact, so --force"), staged(other, force=True):
        raise AssertionError("work was begun")
    assert (other / "a.jpg").exists()


def test_force_replaces_whole(toy_copy, tmp_path):
    with staged(toy_copy, force=True) as staging:
        (staging.folder / "new").write_text("x")
        assert (toy_copy / MANIFEST).exists(), "the old one is there until the new one is whole"
        staging.publish()
    assert [p.name for p in toy_copy.iterdir()] == ["new"] and leftovers(tmp_path) == []


@pytest.mark.parametrize("error", [KeyboardInterrupt(), RuntimeError("x"), OSError(errno.ENOSPC, "full")])
def test_an_interrupted_build_leaves_nothing(tmp_path, error):
    out = tmp_path / "a" / "artifact"
    expected = ArtifactError if isinstance(error, OSError) else type(error)
    with pytest.raises(expected), staged(out, force=False) as staging:
        (staging.folder / "half").write_text("x")
        raise error
    assert list(out.parent.iterdir()) == []


def test_a_path_through_a_file_is_refused(tmp_path):
    (tmp_path / "file").write_text("x")
    with (
        pytest.raises(ArtifactError, match="Cannot write|choose another --out"),
        staged(tmp_path / "file" / "out", force=False),
    ):
        raise AssertionError("work was begun")


@pytest.mark.skipif(
    sys.platform != "linux" or shutil.which("mount") is None or os.geteuid() != 0,
    reason="mounting needs root on Linux",
)
def test_a_read_only_and_a_full_disk_are_said(tmp_path):
    import subprocess

    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", disk], capture_output=True)
    if mounted.returncode != 0:
        pytest.skip(f"mounting is not allowed here: {mounted.stderr.decode().strip()}")
    try:
        with pytest.raises(ArtifactError, match="disk is full"), staged(disk / "out", force=False) as staging:
            (staging.folder / "big").write_bytes(b"x" * 1_000_000)
        assert leftovers(disk) == []
        subprocess.run(["mount", "-o", "remount,ro", disk], check=True)
        with pytest.raises(ArtifactError, match="read-only"), staged(disk / "out", force=False):
            raise AssertionError("work was begun")
    finally:
        subprocess.run(["umount", disk], check=True)


def test_nothing_that_a_manifest_names_is_imported(toy_copy, tmp_path):
    """Anyone may have written it: a name of code in it is data."""
    trap, sprung = tmp_path / "trap.py", tmp_path / "sprung"
    trap.write_text(f"open({str(sprung)!r}, 'w')\nMODEL = None\n")
    manifest = json.loads((toy_copy / "manifest.json").read_text())
    manifest["model"]["asked"] = f"{trap}:MODEL"
    (toy_copy / "manifest.json").write_text(json.dumps(manifest))
    refused = run("run", toy_copy, "--image", "photo.jpg")
    assert refused.returncode == 2 and "has no pipeline" in refused.stderr
    refused = run("bench", toy_copy, "--rounds", "1")
    assert refused.returncode == 2 and "which nothing but you may name" in refused.stderr
    assert run("show", toy_copy).returncode == 0
    packaged = run("package", toy_copy, "--platform", "cpp", "--allow-random", "--out", tmp_path / "package")
    assert packaged.returncode == 0, packaged.stderr
    assert not sprung.exists()


@pytest.mark.parametrize("name", ["os:system", "../pose", "trap.py:MODEL", "", "Pose"])
def test_a_pipeline_is_named_and_is_no_path(toy_copy, name):
    manifest = json.loads((toy_copy / "manifest.json").read_text())
    manifest["pipelines"] = [name]
    (toy_copy / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(ArtifactError, match="pipelines/0"):
        open_artifact(toy_copy)


def test_a_target_of_another_version_is_refused(toy_copy):
    manifest = json.loads((toy_copy / "manifest.json").read_text())
    manifest["target"] = "vulkan"
    (toy_copy / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(ArtifactError, match="for the target 'vulkan', which this version"):
        open_artifact(toy_copy)
