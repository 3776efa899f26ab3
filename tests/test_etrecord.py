"""ETRecords: ExecuTorch's own Inspector finds the model's operators and lines behind the events
of the emitted program; only when asked for.
"""

import hashlib
import zipfile
from pathlib import Path

import pytest
from conftest import TOY, TOY_TEXT

import edgeexport
from edgeexport.artifact.pte import plain_name
from edgeexport.compiler.etrecords import _check
from edgeexport.errors import UsageError
from edgeexport.request import _recipes
from edgeexport.verify.profile import ETDUMP, profile

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def artifact(tmp_path_factory):
    """The toy that writes: three methods, two of which write into a state in-place."""
    return edgeexport.build(
        TOY_TEXT, weights="random", etrecord=True, out=tmp_path_factory.mktemp("build") / "text"
    )


@pytest.fixture(scope="module")
def events(artifact, tmp_path_factory):
    """What the Inspector makes of ten recorded calls of decode_step."""
    from executorch.devtools import Inspector

    keep = tmp_path_factory.mktemp("keep")
    profile(artifact.path, ["decode_step"], calls=10, threads=1, keep=keep)
    inspector = Inspector(
        etdump_path=str(keep / ETDUMP), etrecord=str(artifact.path / "decode_step.etrecord")
    )
    (block,) = [
        b for b in inspector.event_blocks if b.name == "Execute" and len(b.events[0].perf_data.raw) > 1
    ]  # prefill, which sets up the state, ran once
    return block.events


def test_every_instruction_has_the_operators_that_it_runs(events, artifact):
    for event in events:
        if event.name.startswith("native_call_"):
            ran = plain_name(event.name.removeprefix("native_call_"))
            assert ran in {op.removeprefix("aten.").partition(".")[0] for op in event.op_types}, event.name
        elif event.name == "DELEGATE_CALL":
            assert (
                event.delegate_backend_name == "XnnpackBackend"
                and len(event.op_types) >= len(event.debug_handles) > 0
            )
        elif event.name == "OPERATOR_CALL":
            assert event.op_types, "each has handles, also those that were made in-place"
    inside = sum(len(event.debug_handles) for event in events if event.name == "DELEGATE_CALL")
    assert inside == artifact.methods["decode_step"].delegation.delegated_nodes


def test_lines_and_modules_are_those_of_the_model(events):
    written = [
        trace
        for event in events
        if event.name == "native_call_index_put_"
        for trace in event.stack_traces.values()
    ]
    assert ["self.values.index_copy_" in trace or "self.keys.index_copy_" in trace for trace in written] == [
        True,
        True,
    ]
    assert all('File "edgeexport/modeling/text_decoding.py", line' in trace for trace in written)
    last = [event for event in events if event.name == "DELEGATE_CALL"][-1]
    assert "F.linear(m.norm" in " ".join(last.stack_traces.values())


def test_they_are_files_of_the_artifact_and_the_program_is_the_same(artifact, text_both):
    records = {f"{name}.etrecord" for name in ("encode", "prefill", "decode_step")}
    assert records == {
        name for name in artifact.manifest.files if name.endswith(".etrecord")
    } and artifact.manifest.recipe.settings == {"etrecord": True}
    plain = text_both[0]
    assert (
        not [path for path in plain.path.iterdir() if path.suffix == ".etrecord"]
        and plain.manifest.recipe.settings == {}
    )
    ours, theirs = (hashlib.sha256(a.program_path.read_bytes()).hexdigest() for a in (artifact, plain))
    assert ours == theirs


def test_they_name_no_folder_of_the_machine_that_built_them(artifact):
    with zipfile.ZipFile(artifact.path / "prefill.etrecord") as record:
        content = b"".join(record.read(name) for name in record.namelist())
    assert b"decoding.py" in content and str(Path(edgeexport.__file__).parent.parent).encode() not in content


def test_a_record_of_another_program_is_not_written():
    _check("m", {0: [1, 2], 3: 4}, {None, 1, 2, 4})
    with pytest.raises(ValueError, match=r"'m' has no node for the debug handles \[4\]"):
        _check("m", {0: [1, 2], 3: 4}, {None, 1, 2})


def test_a_server_package_has_none(tmp_path):
    with pytest.raises(UsageError, match="aoti has no setting --etrecord"):
        edgeexport.build(TOY, target="aoti", weights="random", etrecord=True, out=tmp_path / "out")
    assert list(tmp_path.iterdir()) == []
    edge, server = _recipes(("xnnpack", "aoti"), "fp32", {"etrecord": True, "cpu_isa": None}, None)
    assert edge.etrecord and "etrecord" not in server.settings
