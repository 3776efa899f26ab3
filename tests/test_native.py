"""The native runner: the C++ runtime without Python answers the same, keeps state, refuses as it
does, and when it dies that is an error.
"""

import json
import shutil
import subprocess
import sys

import pytest
import torch
from in_process import run_command

import edgeexport
from edgeexport.errors import InputError, RuntimeFault, UsageError
from edgeexport.runtime import native, runner

pytestmark = [
    pytest.mark.toolchain,
    pytest.mark.skipif(
        not shutil.which("g++") or not shutil.which("cmake"),
        reason="the native runner needs g++ and cmake"
        " (apt install g++ nlohmann-json3-dev; pip install cmake)",
    ),
]


@pytest.fixture(scope="module")
def program(toy_artifact):
    return edgeexport.open(toy_artifact.path, runtime="native")


def test_it_says_what_the_python_runtime_says(program, toy_artifact):
    for batch in (1, 2, 17):
        x = torch.randn(batch, 3, 16, 16)
        (ours,), (theirs,) = program["classify"](x), edgeexport.open(toy_artifact.path)["classify"](x)
        assert ours.shape == theirs.shape == (batch, 8) and torch.allclose(ours, theirs, atol=1e-6)


def test_every_check_passes_and_the_runners_are_compared(toy_artifact):
    findings = edgeexport.check(toy_artifact.path, runtime="native")
    assert all(f.passed for f in findings), [f for f in findings if not f.passed]
    assert {"runners", "numerics", "dynamic_bounds", "memory"} <= {f.check for f in findings}
    assert "runners" not in {f.check for f in edgeexport.check(toy_artifact.path)}


def test_state_is_kept_between_calls(text_both):
    ours, theirs = (edgeexport.open(text_both[0].path, runtime=runtime) for runtime in ("native", None))
    sound = ours["encode"](torch.randn(1, 256, 32, generator=torch.Generator().manual_seed(1)))
    prompt = torch.tensor([[2, 7, 1]]), torch.tensor([0]), *sound
    torch.testing.assert_close(ours["prefill"](*prompt), theirs["prefill"](*prompt), atol=1e-5, rtol=0)
    for place, token in enumerate((3, 1, 4, 1, 5), start=3):  # what prefill wrote, decode_step reads
        step = torch.tensor([[token]]), torch.tensor([place]), *sound
        torch.testing.assert_close(
            ours["decode_step"](*step), theirs["decode_step"](*step), atol=1e-5, rtol=0
        )


def test_state_is_shared_between_methods(text_both):
    """An app's Module gives each method a state of its own unless share_memory_arenas is asked
    for.
    """
    ours, theirs = (edgeexport.open(text_both[0].path, runtime=runtime) for runtime in ("native", None))
    sound = ours["encode"](torch.randn(1, 256, 32, generator=torch.Generator().manual_seed(1)))
    prompt, token = torch.tensor([[3, 1, 4]]), torch.tensor([[1]])
    for program in (ours, theirs):
        program["prefill"](prompt, torch.tensor([0]), *sound)
        program["encode"](torch.zeros(1, 256, 32))
    after = [program["decode_step"](token, torch.tensor([3]), *sound)[0] for program in (ours, theirs)]
    torch.testing.assert_close(*after, atol=1e-5, rtol=0)
    ours["prefill"](torch.tensor([[5, 9, 2]]), torch.tensor([0]), *sound)
    assert not torch.allclose(
        ours["decode_step"](token, torch.tensor([3]), *sound)[0], after[0], atol=1e-3
    ), "the state matters"


def test_times_memory_and_what_the_runtime_has(program):
    outputs, latency_ms = program.engine.call("classify", [torch.randn(2, 3, 16, 16)], warmup=2, repeat=5)
    assert outputs[0].shape == (2, 8) and len(latency_ms) == 5 and all(0 < t < 1000 for t in latency_ms)
    memory, facts = program.engine.memory(), program.engine.describe()
    assert 1e6 < memory["rss_bytes"] <= memory["peak_rss_bytes"] < 200e6, "no Python, no torch"
    assert (
        "XnnpackBackend" in facts["backends"]
        and "aten::add.out" in facts["operators"]
        and facts["threads"] >= 1
    )


def test_threads(toy_artifact):
    code = (
        "import edgeexport, sys, torch\n"
        f"program = edgeexport.open({str(toy_artifact.path)!r}, threads=1, runtime='native')\n"
        "program['classify'](torch.zeros(1, 3, 16, 16))\nprint(program.engine.describe()['threads'])"
    )
    assert (
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.split()[-1] == "1"
    )


def test_the_runtime_itself_refuses_and_goes_on(program):
    with pytest.raises(InputError, match="batch = 18"):
        program["classify"](torch.zeros(18, 3, 16, 16))
    with pytest.raises(RuntimeFault, match=r"execute: .*\(code \d+\)"):
        program["classify"].execute([torch.zeros(18, 3, 16, 16)])
    with pytest.raises(RuntimeFault, match="load_method: .*No method named 'other'"):
        program.engine.method("other")
    assert program["classify"](torch.zeros(1, 3, 16, 16))


def test_a_runner_that_dies_hangs_or_is_not_there_is_an_error(toy_artifact, tmp_path, monkeypatch):
    def fake(text):
        path = tmp_path / "runner"
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)
        return (path,)

    with pytest.raises(RuntimeFault, match="was ended by SIGSEGV at 'load'"):
        native.Engine(toy_artifact, runner=fake("read line; kill -SEGV $$"))
    with pytest.raises(RuntimeFault, match="ended with code 3 at 'load'"):
        native.Engine(toy_artifact, runner=fake("exit 3"))
    monkeypatch.setattr(native, "TIME_LIMIT_S", 0.5)
    with pytest.raises(RuntimeFault, match=r"did not answer 'load' within 0.5 s"):
        native.Engine(toy_artifact, runner=fake("sleep 60"))
    with pytest.raises(RuntimeFault, match="cannot be started"):
        native.Engine(toy_artifact, runner=(tmp_path / "nowhere",))


def test_what_is_missing_is_named(text_both, monkeypatch, tmp_path):
    with pytest.raises(UsageError, match=r"text.pt2 does not run with 'native'. It runs with: aoti"):
        edgeexport.open(text_both[1].path, runtime="native")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(runner.sys, "executable", str(tmp_path / "python"))
    with pytest.raises(UsageError, match=r"'g\+\+' is not there.*apt install g\+\+"):
        runner.runner_command()
    (tmp_path / "g++").symlink_to("/bin/true")
    with pytest.raises(UsageError, match=r"needs CMake 3.28.*pip install 'edgeexport\[native\]'"):
        runner.runner_command()
    old = tmp_path / "cmake"
    old.write_text("#!/bin/sh\necho cmake version 3.25.1\n")
    old.chmod(0o755)
    with pytest.raises(UsageError, match=r"needs CMake 3.28, and .* is 3.25.1"):
        runner.runner_command()
    old.write_text(
        "#!/bin/sh\necho 'cmake version 3.31.0\nfind_package(nlohmann_json) failed' >&1\n[ $1 = --version ]"
        " || { echo nlohmann_json >&2; exit 1; }\n"
    )
    with pytest.raises(UsageError, match="apt install nlohmann-json3-dev"):
        runner.runner_command()
    assert not (tmp_path / "cache").exists() or not list((tmp_path / "cache").rglob("edgeexport-runner"))


def test_the_command_line(toy_artifact):
    done = run_command("check", toy_artifact.path, "--runner", "native", "--json")
    assert done.returncode == 0, done.stderr
    assert {f["check"] for f in json.loads(done.stdout)["findings"]} >= {"runners"}
