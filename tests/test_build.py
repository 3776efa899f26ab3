"""The whole story on a toy model: right, failing its checks, interrupted."""

import json
import sys
from pathlib import Path

import pytest
from conftest import TOY

import edgeexport
from edgeexport.artifact.folder import open_artifact
from edgeexport.build import build_targets
from edgeexport.errors import ArtifactError, CheckFailed, LoweringError, RuntimeFault, UnknownName, UsageError

PLACE = TOY.rpartition(":")[0]


def test_findings_cover_every_check_and_every_size(toy_artifact):
    findings = toy_artifact.manifest.findings
    assert {f.check for f in findings} == {
        "loads",
        "operators",
        "numerics",
        "dynamic_bounds",
        "memory",
        "delegation",
        "model_schema",
    }
    numerics = [f for f in findings if f.check == "numerics"]
    assert len(numerics) == 7, "six sizes of photographs, and noise"
    assert all("SQNR" in f.measured and "<=" in f.limit for f in numerics)
    (bound,) = [f for f in findings if f.check == "dynamic_bounds"]
    assert "wrapper refuses, runtime refuses" in bound.measured


def test_the_manifest_says_what_each_pass_did_and_what_is_outside(toy_artifact):
    (entry,) = toy_artifact.manifest.methods
    changes = {p.name: p.changes for p in entry.passes}
    assert (
        changes["split_linear"] == 3
        and changes["decompose_attention"] == 1
        and changes["conv3d_as_conv2d"] == 0
    )
    assert entry.delegation.outside, "mean over tokens is not delegable"
    reasons = {o.operator: o.reason for o in entry.delegation.outside}
    assert "mean.dim only supports averaging 4D tensors" in reasons["aten::mean.dim"]


@pytest.mark.long
def test_the_same_seed_gives_the_same_weights(toy_artifact, tmp_path):
    again = edgeexport.build(TOY, weights="random:0", out=tmp_path / "again")
    other = edgeexport.build(TOY, weights="random:1", batch="2:3", out=tmp_path / "other")
    digests = [a.manifest.weights.sha256 for a in (toy_artifact, again, other)]
    assert digests[0] == digests[1] != digests[2]
    assert other.methods["classify"].dims[0].verified == (2, 3)


def test_a_static_model_and_one_batch(tmp_path):
    edgeexport.build(f"{PLACE}:batchless", weights="random", out=tmp_path / "static")
    one = edgeexport.build(TOY, weights="random", batch="1", out=tmp_path / "one")
    assert one.methods["classify"].dims[0].verified == (1, 1)


@pytest.mark.long
def test_a_module_without_weights_builds_for_every_target(tmp_path):
    outs = [tmp_path / target for target in ("xnnpack", "aoti")]
    built = build_targets(
        f"{PLACE}:weightless", targets=("xnnpack", "aoti"), weights="random", batch="1:3", outs=outs
    )
    for artifact, check in zip(built, ("memory", "package_size")):
        assert artifact.manifest.weights.size_bytes == 0
        (finding,) = [f for f in artifact.manifest.findings if f.check == check and not f.method]
        assert finding.passed and "the model has no weights" in finding.measured
        assert finding.limit.endswith("<= 262 kB")


@pytest.mark.parametrize("name", ["impossible", "wrong"])
def test_a_failing_check_keeps_the_artifact_under_a_name_that_says_so(tmp_path, name):
    with pytest.raises(CheckFailed, match="allowed: (max abs|<= 1 byte)") as raised:
        edgeexport.build(f"{PLACE}:{name}", weights="random", out=tmp_path / "out")
    assert raised.value.exit_code == 1
    assert not (tmp_path / "out").exists()
    kept = open_artifact(tmp_path / "out.failed")
    assert any(not f.passed for f in kept.manifest.findings)


def test_a_build_that_fails_again_replaces_what_was_kept(tmp_path):
    (tmp_path / "out.failed").mkdir()
    (tmp_path / "out.failed" / "manifest.json").write_text("that of the last time")
    with pytest.raises(CheckFailed):
        edgeexport.build(f"{PLACE}:impossible", weights="random", batch="1", out=tmp_path / "out")
    assert open_artifact(tmp_path / "out.failed").manifest.model.name == "toy"


def test_check_finds_a_program_that_says_something_else(toy_copy):
    """Right hashes, other numbers: golden answers of another model."""
    from safetensors.torch import load_file, save_file

    from edgeexport.artifact.folder import record

    golden = load_file(toy_copy / "golden.safetensors")
    golden["classify/3/logits"] = golden["classify/3/logits"] + 0.01
    save_file(golden, toy_copy / "golden.safetensors")
    manifest = json.loads((toy_copy / "manifest.json").read_text())
    manifest["files"]["golden.safetensors"] = vars(record(toy_copy / "golden.safetensors"))
    (toy_copy / "manifest.json").write_text(json.dumps(manifest))
    failed = [f for f in edgeexport.check(toy_copy) if not f.passed]
    assert [(f.check, f.details["case"]) for f in failed] == [("numerics", "3")]


def test_a_crash_of_the_checking_process_is_a_finding(toy_copy, monkeypatch):
    monkeypatch.setattr(sys, "executable", "/bin/false")
    (finding,) = edgeexport.check(toy_copy)
    assert not finding.passed and "exit code 1" in finding.measured


def test_a_program_with_a_damaged_header_is_a_finding_not_a_crash(toy_copy):
    from edgeexport.artifact.folder import record

    program = toy_copy / "toy.pte"
    data = bytearray(program.read_bytes())
    data[4:8] = b"XXXX"
    program.write_bytes(data)
    manifest = json.loads((toy_copy / "manifest.json").read_text())
    manifest["files"]["toy.pte"] = vars(record(program))
    (toy_copy / "manifest.json").write_text(json.dumps(manifest))
    findings = edgeexport.check(toy_copy)
    assert [f.check for f in findings] == ["loads"] and not findings[0].passed
    with pytest.raises(RuntimeFault, match="cannot load"):
        edgeexport.open(toy_copy)["classify"].load()


@pytest.mark.parametrize(
    ("name", "error", "said"),
    [("interrupted", KeyboardInterrupt, ""), ("full_disk", ArtifactError, "disk is full")],
)
def test_stopping_in_the_middle_leaves_nothing(tmp_path, name, error, said):
    with pytest.raises(error, match=said):
        edgeexport.build(f"{PLACE}:{name}", weights="random", out=tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("options", "error", "said"),
    [
        ({"model": "sam3"}, UnknownName, "Did you mean 'sam2"),
        ({"target": "xnpack"}, UnknownName, "Did you mean 'xnnpack'"),
        ({"precision": "fp23"}, UnknownName, "Did you mean 'fp32'"),
        ({"batch": "0:4"}, UsageError, "for example 1:16"),
        ({"batch": "4:1"}, UsageError, "for example 1:16"),
        ({"skip_passes": ("nothing",)}, UsageError, "no pass 'nothing'"),
        ({"model": f"{PLACE}:NOT_A_MODEL"}, UsageError, "edgeexport.Model"),
        ({"model": f"{PLACE}:MISSING"}, UsageError, "has no 'MISSING'"),
        ({"model": "no/such/file.py:MODEL"}, UsageError, "cannot be imported"),
        ({"weights": "pretrained"}, UsageError, "cannot be had.*--weights random"),
        ({"model": f"{PLACE}:batchless", "batch": "1:4"}, UsageError, "has no batch dimension"),
    ],
)
def test_wrong_use_is_refused_with_what_to_do(tmp_path, options, error, said):
    arguments = {"model": TOY, "weights": "random", "out": tmp_path / "out"} | options
    with pytest.raises(error, match=said) as raised:
        edgeexport.build(arguments.pop("model"), **arguments)
    assert raised.value.exit_code == 2 and list(tmp_path.iterdir()) == []


def test_lowering_that_narrows_a_dimension_is_refused(tmp_path, monkeypatch):
    """Without the guard's cure the program would be planned for 15: the build stops."""
    import contextlib

    from edgeexport.compiler import capture, edge_lowering, rewrite

    for module in (capture, edge_lowering, rewrite):
        monkeypatch.setattr(module, "no_backend_guards", contextlib.nullcontext)
    with pytest.raises(LoweringError, match="narrowed dimension 0 .* from 17 to 15"):
        edgeexport.build(TOY, weights="random", out=tmp_path / "out")
    assert list(Path(tmp_path).iterdir()) == []
