"""One archive of several artifacts: byte for byte the same again, readable by plain PyTorch,
refused when it is damaged.
"""

import json
import random
import shutil
import zipfile

import pytest

import edgeexport
from edgeexport.artifact.folder import open_artifact, open_artifacts
from edgeexport.errors import ArtifactError, UsageError


@pytest.fixture(scope="module")
def archive(text_both, tmp_path_factory):
    """The toy that writes, phone and server in one file."""
    return edgeexport.bundle([a.path for a in text_both], tmp_path_factory.mktemp("bundle") / "text.pt2")


@pytest.fixture
def copy(archive, tmp_path):
    return shutil.copy(archive, tmp_path / "text.pt2")


def files(folder):
    return {f.name: f.read_bytes() for f in folder.iterdir()}


def test_every_file_comes_back_byte_for_byte(archive, text_both):
    opened = list(open_artifacts(archive))
    assert [a.name for a in opened] == [f"{archive}/xnnpack-fp32", f"{archive}/aoti-fp32"]
    for ours, built in zip(opened, text_both):
        assert files(ours.path) == files(built.path)
    folder = opened[0].path
    del opened, ours
    assert not folder.exists(), "what was unpacked goes away with the artifact"


def test_what_is_in_several_artifacts_is_stored_once(archive, text_both):
    with zipfile.ZipFile(archive) as opened:
        sizes = {m.filename.partition("/")[2]: m.file_size for m in opened.infolist()}
    assert len([name for name in sizes if name.endswith("golden.safetensors")]) == 1
    assert archive.stat().st_size < 1.02 * sum(f.stat().st_size for a in text_both for f in a.path.iterdir())
    assert sizes["data/executorch/xnnpack-fp32.pte"] == text_both[0].program_path.stat().st_size


def test_plain_pytorch_reads_the_programs_and_the_models(archive, text_both):
    from torch.export.pt2_archive._package import load_pt2

    found = load_pt2(str(archive))
    methods = set(text_both[0].methods)
    assert set(found.exported_programs) == methods and set(found.aoti_runners) == methods
    assert (
        found.extra_files["edgeexport/aoti-fp32/manifest.json"]
        == (text_both[1].path / "manifest.json").read_text()
    )
    with zipfile.ZipFile(archive) as opened:
        root = opened.namelist()[0].partition("/")[0]
        for method, model in found.aoti_runners.items():
            weights = json.loads(opened.read(f"{root}/data/aotinductor/{method}/weights_config.json"))
            assert sorted(weights) == sorted(model.get_constant_fqns())
            assert all(f"{root}/data/weights/{file}" in opened.namelist() for file, *_ in weights.values())


def test_open_takes_the_first_or_the_one_that_is_named(archive, text_both):
    assert edgeexport.open(archive).manifest.target == "xnnpack"
    assert open_artifact(archive, lambda target: target.serves).manifest.target == "aoti"
    program = edgeexport.open(archive / "aoti-fp32")
    assert program.manifest.target == "aoti"
    for method in program.methods:
        program[method].load()
    with pytest.raises(ArtifactError, match="has no artifact 'coreml-fp16'. It has: xnnpack-fp32, aoti-fp32"):
        edgeexport.open(archive / "coreml-fp16")


@pytest.mark.long
def test_check_and_parity_take_it_as_folders(archive):
    from edgeexport.verify.parity import parity

    assert {f.check for f in edgeexport.check(archive)} >= {"delegation", "package_size", "numerics"}
    found = parity([archive])
    assert found.passed and list(found.sides) == ["xnnpack-fp32", "aoti-fp32"]


def test_archives_can_be_bundled_again(archive, text_both, tmp_path):
    assert edgeexport.bundle(
        [archive / "aoti-fp32", text_both[0].path], tmp_path / "again.pt2"
    ).stat().st_size == pytest.approx(archive.stat().st_size, rel=1e-3)


def test_no_byte_can_change_unnoticed(copy, text_both):
    """Each change is refused, or was where nothing is read (padding): then what comes out is what
    was built.
    """
    good, wanted = copy.read_bytes(), [files(a.path) for a in text_both]
    draw = random.Random(0)
    places = (
        [draw.randrange(len(good)) for _ in range(40)]
        + [draw.randrange(len(good) - 20_000, len(good)) for _ in range(40)]
        + list(range(0, 60, 3))
    )
    refused = 0
    for place in places:
        copy.write_bytes(good[:place] + bytes([good[place] ^ (1 << draw.randrange(8))]) + good[place + 1 :])
        try:
            assert [files(a.path) for a in open_artifacts(copy)] == wanted, f"byte {place}"
        except ArtifactError:
            refused += 1
    assert refused > 50


def without(path, unwanted):
    """The archive without a record."""
    with zipfile.ZipFile(path) as old:
        records = [(m.filename, old.read(m)) for m in old.infolist() if unwanted not in m.filename]
    with zipfile.ZipFile(path, "w") as new:
        for name, content in records:
            new.writestr(name, content)


@pytest.mark.parametrize(
    "record",
    ["data/executorch/", "models/", "data/aotinductor/", "program_weight_0", "golden", "manifest.json"],
)
def test_a_missing_record_is_named(copy, record):
    without(copy, record)
    with pytest.raises(ArtifactError, match=rf"{copy}.*{record}"):
        list(open_artifacts(copy))


def test_what_is_no_archive_is_refused(copy, tmp_path, text_both):
    without(copy, "index.json")
    with pytest.raises(ArtifactError, match="not an archive that `edgeexport bundle` wrote"):
        edgeexport.open(copy)
    with pytest.raises(ArtifactError, match="not an archive"):
        edgeexport.open(text_both[1].program_path)
    for content in (b"", b"PK\x05\x06", b"not an archive at all", copy.read_bytes()[:-1000]):
        (tmp_path / "x.pt2").write_bytes(content)
        with pytest.raises(ArtifactError, match="damaged, or no archive|is not an archive"):
            edgeexport.open(tmp_path / "x.pt2")


@pytest.mark.parametrize("name", ["../evil", "a/b", ".hidden", ""])
def test_names_cannot_lead_out_of_the_folder(copy, name):
    with zipfile.ZipFile(copy) as old:
        records = [(m.filename, old.read(m)) for m in old.infolist()]
    with zipfile.ZipFile(copy, "w") as new:
        for file, content in records:
            if file.endswith("index.json"):
                index = json.loads(content)
                index["folders"]["xnnpack-fp32"][name] = index["folders"]["xnnpack-fp32"].pop("manifest.json")
                content = json.dumps(index).encode()
            new.writestr(file, content)
    with pytest.raises(ArtifactError, match="an index that this version does not read"):
        edgeexport.open(copy)


def test_what_does_not_belong_together_is_not_bundled(text_both, toy_both, tmp_path):
    edge, server = (a.path for a in text_both)
    with pytest.raises(UsageError, match="not of the same model"):
        edgeexport.bundle([edge, toy_both[1].path], tmp_path / "x.pt2")
    with pytest.raises(UsageError, match="Two of the artifacts are xnnpack-fp32"):
        edgeexport.bundle([edge, edge], tmp_path / "x.pt2")
    with pytest.raises(UsageError, match="must end in .pt2"):
        edgeexport.bundle([edge], tmp_path / "x.zip")
    failed = shutil.copytree(server, tmp_path / "failed")
    manifest = json.loads((failed / "manifest.json").read_text())
    manifest["findings"][0]["passed"] = False
    (failed / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(UsageError, match=r"failed its checks \(loads\)"):
        edgeexport.bundle([edge, failed], tmp_path / "x.pt2")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["failed"], "nothing half-written"


def test_nothing_is_overwritten_without_force(archive, text_both, tmp_path):
    out = tmp_path / "text.pt2"
    out.write_text("a letter")
    with pytest.raises(ArtifactError, match="--force"):
        edgeexport.bundle([text_both[0].path], out)
    with pytest.raises(ArtifactError, match="no archive"):
        edgeexport.bundle([text_both[0].path], out, force=True)
    shutil.copy(archive, out)
    assert edgeexport.bundle([text_both[0].path], out, force=True) == out
    assert len(list(open_artifacts(out))) == 1 and [p.name for p in tmp_path.iterdir()] == ["text.pt2"]
