"""The profile: times add up, what is outside is named with the reason, lines are those that did the
work, and what cannot be profiled is refused.
"""

import dataclasses
import json
import shutil
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from in_process import run_command
from manifests import method_of

import edgeexport
from edgeexport.artifact.cases import GoldenAnswers, case_calls
from edgeexport.artifact.folder import SOURCES
from edgeexport.artifact.manifest import Case, CaseSetup, Delegation, Outside
from edgeexport.errors import ArtifactError, CheckFailed, RuntimeFault, UnknownName, UsageError
from edgeexport.verify.compare import FLOOR
from edgeexport.verify.profile import (
    ADDED,
    ADDED_LATER,
    BETWEEN,
    ETDUMP,
    NOT_ATTRIBUTED,
    _case,
    _check_sum,
    _method,
    profile,
)
from edgeexport.verify.profile.attribution import aligned
from edgeexport.verify.profile.bundled import write_bundled
from edgeexport.verify.profile.events import CALL, DELEGATE, EXECUTE, _measured
from edgeexport.verify.profile.fixes import FIXES, NONE_KNOWN, fix_of

MODEL = Path(__file__).parent / "toy_slow.py"


@pytest.fixture(scope="module")
def artifact(tmp_path_factory):
    return edgeexport.build(f"{MODEL}:MODEL", weights="random", out=tmp_path_factory.mktemp("build") / "slow")


@pytest.fixture(scope="module")
def keep(tmp_path_factory):
    return tmp_path_factory.mktemp("keep") / "inner"


@pytest.fixture(scope="module")
def method(artifact, keep):
    """The profile of its one method, at batch 2."""
    (found,) = profile(artifact.path, sizes={"batch": 2}, calls=8, threads=1, keep=keep).methods
    return found


@pytest.fixture
def copy(artifact, tmp_path):
    """A copy of the artifact's folder, and a function that changes its manifest."""
    path = Path(shutil.copytree(artifact.path, tmp_path / "slow"))

    def change(edit):
        manifest = json.loads((path / "manifest.json").read_text())
        edit(manifest)
        (path / "manifest.json").write_text(json.dumps(manifest))
        return path

    return change


def line_of(mark):
    """Where the toy's source says `# mark`."""
    number = next(n for n, text in enumerate(MODEL.read_text().splitlines(), 1) if text.endswith(f"# {mark}"))
    return f"toy_slow.py:{number}"


def test_the_shares_add_up_to_the_call(method):
    assert method.sizes == {"batch": 2} and 0.95 < sum(o.share for o in method.operators) < 1.05
    assert (
        abs(method.accounted_ms - method.total_ms) < 0.05 * method.total_ms
        and method.range_ms[0] <= method.total_ms <= method.range_ms[1]
    )
    assert [o.time_ms for o in method.operators] == sorted(
        (o.time_ms for o in method.operators), reverse=True
    )
    assert BETWEEN in {o.operator for o in method.operators}


def test_what_is_outside_is_named_with_the_partitioners_reason(method, artifact):
    outside = {o.operator: o for o in method.operators if o.delegated is False}
    assert method.costliest_outside.operator == "aten::flip.out" and set(outside) == {
        "aten::flip.out",
        "aten::mean.out",
    }
    recorded = {o.operator: o.reason for o in artifact.methods["classify"].delegation.outside}
    assert (
        outside["aten::flip.out"].reason == recorded["aten::flip"]
        and outside["aten::flip.out"].fix == NONE_KNOWN
    )
    assert (
        outside["aten::mean.out"].reason == recorded["aten::mean.dim"]
        and "keepdim" in outside["aten::mean.out"].fix
    )


def test_a_slow_line_is_found(method):
    worst = method.lines[0]
    assert (
        worst.source.endswith(line_of("slow"))
        and worst.module == "wide"
        and worst.time_ms > method.total_ms / 2
    )
    assert [line.source for line in method.costliest_outside.lines][0].endswith(line_of("outside"))
    assert NOT_ATTRIBUTED not in {line.source for line in method.lines}
    products = next(o for o in method.operators if o.operator.startswith("Fully Connected"))
    assert products.calls == 3 and {line.module for line in products.lines} == {"first", "wide", "narrow"}


def test_the_artifact_names_no_folder_of_the_machine_that_built_it(artifact):
    content = json.loads((artifact.path / SOURCES).read_text())
    assert SOURCES in artifact.manifest.files and content["sources"]
    assert not [source for source, _ in content["sources"] if source.startswith(("/", ".."))] and str(
        MODEL.parent.parent
    ) not in json.dumps(content)


def test_what_is_kept_is_for_other_tools(method, keep, artifact):
    from executorch.devtools.bundled_program.serialize import deserialize_from_flatbuffer_to_bundled_program
    from executorch.devtools.etdump.serialize import deserialize_from_etdump_flatcc

    assert deserialize_from_etdump_flatcc((keep / ETDUMP).read_bytes()).run_data
    bundled = deserialize_from_flatbuffer_to_bundled_program((keep / "slow.bpte").read_bytes())
    assert bytes(bundled.program) == artifact.program_path.read_bytes()
    (suite,) = bundled.method_test_suites
    program, golden = edgeexport.open(artifact.path), artifact.golden()
    cases = artifact.methods["classify"].cases
    assert suite.method_name == "classify" and len(suite.test_cases) == len(cases)
    for case, kept in zip(cases, suite.test_cases):
        _, (x,) = case_calls(case, program, program["classify"], GoldenAnswers(golden))
        for values, tensor in (
            (kept.inputs, x),
            (kept.expected_outputs, golden[f"classify/{case.id}/logits"]),
        ):
            assert torch.equal(
                torch.frombuffer(bytearray(values[0].val.data), dtype=torch.float32).reshape(
                    values[0].val.sizes
                ),
                tensor,
            )


def verified(content, artifact, method, index):
    """The answer to a case of a bundled program by ExecuTorch's own verification, within the
    artifact's tolerance. Raises RuntimeError.
    """
    from executorch.extension.pybindings import portable_lib

    wanted = [tensor for name, tensor in artifact.golden().items() if name.startswith(f"{method}/{index}/")]
    atol = max(
        FLOOR,
        artifact.methods[method].tolerance.max_abs_relative
        * min(float(tensor.abs().max()) for tensor in wanted),
    )
    return portable_lib._load_bundled_program_from_buffer(
        bytes(content)
    ).verify_result_with_bundled_expected_output(method, index, 0.0, atol)


def test_executorch_itself_verifies_the_bundled_cases_at_every_size(method, keep, artifact):
    content = (keep / "slow.bpte").read_bytes()
    for index, case in enumerate(artifact.methods["classify"].cases):
        (answer,) = verified(content, artifact, "classify", index)
        torch.testing.assert_close(answer, artifact.golden()[f"classify/{case.id}/logits"], atol=1e-4, rtol=0)
        assert len(answer) == case.sizes["batch"]


def test_a_bundled_answer_that_is_another_fails_there(method, keep, artifact):
    content = bytearray((keep / "slow.bpte").read_bytes())
    wanted = artifact.golden()["classify/1/logits"]
    place = content.index(wanted.numpy().tobytes())
    content[place : place + 4] = (wanted.flatten()[:1] + 0.01).numpy().tobytes()
    with pytest.raises(RuntimeError, match="Result verification failed"):
        verified(content, artifact, "classify", 1)
    assert verified(content, artifact, "classify", 0) and verified(content, artifact, "classify", 2)


def test_a_case_that_starts_from_a_state_is_no_bundled_case(text_both, tmp_path):
    artifact = text_both[0]
    write_bundled(edgeexport.open(artifact.path), ["prefill", "decode_step"], tmp_path / "text.bpte")
    content = (tmp_path / "text.bpte").read_bytes()
    for index in range(len(artifact.methods["prefill"].cases)):
        assert verified(content, artifact, "prefill", index)
    with pytest.raises(RuntimeError, match="Method execution failed"):
        verified(content, artifact, "decode_step", 0)


def test_the_command_line_on_an_artifact_of_before(copy, tmp_path):
    path = copy(lambda manifest: manifest["files"].pop(SOURCES))
    (path / SOURCES).unlink()
    command = ["profile", path, "--method", "classify", "--calls", "2", "--out", tmp_path / "profile.json"]
    done = run_command(*command)
    assert done.returncode == 0, done.stderr
    assert (
        done.stdout.startswith("flip: ")
        and "% of classify, 1 call, not delegated because: the partitioner has no rule" in done.stdout
    )
    assert "measure latency without it" in done.stdout
    content = json.loads((tmp_path / "profile.json").read_text())
    assert (content["format"], content["kind"], content["model"]) == (1, "profile", "slow") and len(
        content["program_sha256"]
    ) == 64
    (entry,) = content["methods"]
    assert entry["sizes"] == {"batch": 1} and all(o["lines"] == [] for o in entry["operators"])
    again = run_command(*command)
    assert again.returncode == 2 and "is there already. Give --force" in again.stderr


def test_what_cannot_be_profiled_is_refused(artifact, copy, keep, method):
    with pytest.raises(UnknownName, match="no method 'clasify'. Did you mean 'classify'"):
        profile(artifact.path, ["clasify"])
    with pytest.raises(UnknownName, match="no dimension 'tokens'"):
        profile(artifact.path, sizes={"tokens": 2})
    with pytest.raises(UsageError, match="batch = 4 cannot be: this program takes 1 to 3"):
        profile(artifact.path, sizes={"batch": 4})
    with pytest.raises(ArtifactError, match=f"{ETDUMP} is there already"):
        profile(artifact.path, keep=keep)

    def as_package(manifest):
        manifest["files"]["slow.pt2"] = manifest["files"].pop("slow.pte")
        manifest["program"] = "slow.pt2"

    path = copy(as_package)
    (path / "slow.pte").rename(path / "slow.pt2")
    with pytest.raises(UsageError, match="is a server package .*torch.profiler"):
        profile(path)


def test_a_program_that_kills_the_runtime_is_an_error(artifact, tmp_path, monkeypatch):
    fake = tmp_path / "python"
    fake.write_text("#!/bin/sh\necho last words\nkill -SEGV $$\n")
    fake.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(fake))
    with pytest.raises(RuntimeFault, match="was ended by SIGSEGV at: starting. last words"):
        profile(artifact.path)


def event(name, start, end, instruction=0, inside=None):
    return SimpleNamespace(
        name=name,
        start_time=start * 10**6,
        end_time=end * 10**6,
        instruction_id=instruction,
        delegate_debug_id_str=inside,
        delegate_debug_id_int=-1,
    )


def call(total=20, last=19):
    return [
        event(None, 4, 6, 1, "Copy (NC, X32) #1"),
        event(None, 6, 11, 1, "Copy (NC, X32) #2"),
        event(DELEGATE, 3, 12, 1),
        event(CALL, 1, 3, 0),
        event(CALL, 14, last, 2),
        event(EXECUTE, 0, total),
    ]


ENTRY = method_of("m", delegation=Delegation(1, 4, (Outside("aten::index_put", 1, "no rule"),)))
NAMES = {0: "aten::copy_.default", 1: "XnnpackBackend", 2: "aten::index_put_.default"}


def test_every_millisecond_is_in_one_row():
    measured = _measured([call(), call(), call(total=90, last=80), call(total=95, last=80)], NAMES)
    found = _method(ENTRY, measured | {"sizes": {}}, None)
    assert measured["range_ms"] == [20, 95] and found.total_ms == found.accounted_ms == 20
    rows = {o.operator: (o.time_ms, o.calls, o.reason) for o in found.operators}
    assert rows == {
        "Copy (NC, X32)": (7, 2, ""),
        "XnnpackBackend overhead": (2, 1, ""),
        BETWEEN: (4, 1, ""),
        "aten::copy_.default": (2, 1, ADDED_LATER),
        "aten::index_put_.default": (5, 1, "no rule"),
    }
    _check_sum(found)


def test_what_does_not_add_up_fails():
    overlapping = _method(ENTRY, _measured([[*call(), event(CALL, 2, 15, 0)]], NAMES) | {"sizes": {}}, None)
    with pytest.raises(CheckFailed, match="take 33.000 ms together, the whole call 20.000 ms"):
        _check_sum(overlapping)
    with pytest.raises(CheckFailed, match="do not add up within 5%"):
        _check_sum(dataclasses.replace(overlapping, accounted_ms=18.9))


def test_operators_are_told_apart_by_kind_and_order():
    ran = [
        "Transpose (ND, X32)",
        "Convolution (NHWC, F32) IGEMM",
        "Square (NC)",
        "Copy (NC, X32)",
        "Fully Connected (NC, F32) GEMM",
        "Fully Connected (NC, F32) GEMM",
    ]
    nodes = ["StaticTranspose", "DepthwiseConv2d", "Multiply", "Concatenate3", "Conv2d", "FullyConnected"]
    assert aligned(ran, nodes) == [0, 1, 2, 3, 4, 5]
    # XNNPACK dropped a reshape: what is left stands between the same neighbours
    assert aligned(
        ["Add (ND)", "Static Reshape (NC)", "Multiply (ND)"],
        ["StaticReshape", "Add", "StaticReshape", "Multiply"],
    ) == [1, 2, 3]
    assert aligned(["Add (ND)", "Something New (NC)"], ["Add"]) == [0, None]
    assert aligned(["Add (ND)"], []) == [None]


def test_what_no_line_asks_for_is_said():
    sources = {
        "sources": [["a.py:1", "b"]],
        "methods": {
            "m": {
                "instructions": {"0": None, "2": 0},
                "delegates": {"1": [["Concatenate2", None], ["Copy", None]]},
            }
        },
    }
    found = _method(ENTRY, _measured([call()], NAMES) | {"sizes": {}}, sources)
    lines = {o.operator: [(line.source, line.module) for line in o.lines] for o in found.operators}
    assert lines["aten::copy_.default"] == [(ADDED, "")] == lines["Copy (NC, X32)"] and lines[
        "aten::index_put_.default"
    ] == [("a.py:1", "b")]
    assert lines[BETWEEN] == lines["XnnpackBackend overhead"] == []
    sources["methods"]["m"]["delegates"]["1"] = [["Add", 0]]
    found = _method(ENTRY, _measured([call()], NAMES) | {"sizes": {}}, sources)
    assert [
        (line.source, line.time_ms)
        for o in found.operators
        if o.operator.startswith("Copy")
        for line in o.lines
    ] == [(NOT_ATTRIBUTED, 7)]


def test_a_step_is_set_up_at_the_position_that_is_asked_for():
    cases = tuple(
        Case(
            str(n),
            "structured",
            {"position": n, "batch": 1},
            0,
            CaseSetup("prefill", "structured", {"tokens": n}, 0),
            "",
        )
        for n in (1, 5)
    )
    case = _case(method_of("decode_step", cases=cases), {"position": 9, "other": 3})
    assert case.sizes == {"position": 9, "batch": 1} and case.setup.sizes == {"tokens": 9}


def test_fixes_are_found_by_what_lowering_left_of_a_name():
    assert fix_of("aten::index_put_.default") == fix_of("aten::index_put.out") == FIXES["index_put"]
    assert fix_of("aten::cumsum.out") == NONE_KNOWN and "decompose_layer_norm" in fix_of(
        "aten::native_layer_norm.out"
    )
