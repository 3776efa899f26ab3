"""The command line: exit codes, examples, JSON, messages without tracebacks."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time

import pytest
from conftest import TOY
from in_process import run_command

PLACE = TOY.rpartition(":")[0]


def run(*arguments, **options):
    command = [sys.executable, "-m", "edgeexport", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, **options)


def test_a_process_of_its_own_says_the_same(toy_artifact, tmp_path):
    done = run("check", toy_artifact.path)
    assert done.returncode == 0 and "ok" in done.stdout and "FAILED" not in done.stdout
    for arguments in (["check", tmp_path], ["build", "sma2"]):
        real, here = run(*arguments), run_command(*arguments)
        assert (
            real.returncode == here.returncode == 2
            and real.stderr == here.stderr
            and real.stderr.startswith("Error: ")
        )


@pytest.mark.parametrize("command", [[], ["models"], ["build"], ["check"], ["run"], ["show"]])
def test_help_has_an_example(command):
    done = run(*command, "--help")
    assert done.returncode == 0 and "Example:" in done.stdout and "edgeexport" in done.stdout


def test_models_as_json():
    listed = json.loads(run("models", "--json").stdout)
    names = {n for m in listed["models"] for n in (m["name"], *m["aliases"])}
    assert {
        "sam2",
        "sam2-tiny",
        "sam2-small",
        "sam2-base-plus",
        "sam2-large",
        "mvit",
        "mvit-v1-b",
        "mvit-v2-s",
    } <= names
    assert listed["targets"][0]["precisions"] == ["fp32"]


def test_build_check_show_and_run(tmp_path):
    out = tmp_path / "toy"
    run = run_command
    done = run("build", TOY, "--weights", "random", "--batch", "1:3", "--out", out)
    assert done.returncode == 0, done.stderr
    assert "lower to xnnpack" in done.stderr and "peak memory" in done.stdout and "random" in done.stdout
    checked = json.loads(run("check", out, "--json").stdout)
    assert checked["passed"] and len(checked["findings"]) > 5
    shown = run("show", out)
    assert shown.returncode == 0
    for word in (
        "classify",
        "float32",
        "batch, 3, 16, 16",
        "contiguous",
        "verified 1 to 3",
        "delegates",
        "torch 2.13",
    ):
        assert word in shown.stdout, word
    assert json.loads(run("show", out, "--json").stdout)["format"] == 1
    again = run("build", TOY, "--weights", "random", "--out", out)
    assert again.returncode == 2 and "--force" in again.stderr
    refused = run("run", out, "--image", "x.jpg")
    assert refused.returncode == 2 and "no pipeline" in refused.stderr
    bundled = run("bundle", out)
    assert bundled.returncode == 0 and "xnnpack-fp32" in bundled.stdout, bundled.stderr
    assert json.loads(run("show", tmp_path / "toy.pt2" / "xnnpack-fp32", "--json").stdout) == json.loads(
        (out / "manifest.json").read_text()
    )
    checked = json.loads(run("check", tmp_path / "toy.pt2", "--json").stdout)
    assert checked["passed"] and {f["artifact"] for f in checked["findings"]} == {"xnnpack-fp32"}
    assert run("bundle", out).returncode == 2
    (out / "toy.pte").write_bytes(b"x")
    damaged = run("check", out)
    assert damaged.returncode == 2 and "cut short" in damaged.stderr and "Traceback" not in damaged.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["biuld", "sam2"], "Did you mean 'build'"),
        (["build"], "Missing argument"),
        (["build", "sam2", "--wieghts", "random"], "No such option"),
        (["build", "sma2"], "Did you mean 'sam2"),
        (["build", "mvit", "--target", "coreml"], "There is no target 'coreml'"),
        (["build", "mvit", "--batch", "4:1", "--weights", "random"], "1 <= MIN <= MAX"),
        (["build", "mvit", "--weights", "missing.pt"], "no checkpoint file"),
        (["check", "nowhere"], "not an artifact"),
        (["show", "nowhere"], "not an artifact"),
        (["run", "nowhere"], "not an artifact"),
    ],
)
def test_wrong_use_exits_with_2_and_a_message(tmp_path, arguments, said):
    with contextlib.chdir(tmp_path):
        done = run_command(*arguments)
    assert done.returncode == 2 and said in done.stderr and "Traceback" not in done.stderr
    assert not (tmp_path / "build" / "mvit").exists() or list((tmp_path / "build" / "mvit").iterdir()) == []


def test_a_failed_check_exits_with_1(tmp_path):
    done = run_command("build", f"{PLACE}:impossible", "--weights", "random", "--out", tmp_path / "out")
    assert done.returncode == 1 and "checks failed" in done.stderr and "out.failed" in done.stderr
    assert run_command("check", tmp_path / "out.failed").returncode == 1


def test_ctrl_c_in_the_middle_of_a_real_build_leaves_nothing(tmp_path):
    command = [
        sys.executable,
        "-m",
        "edgeexport",
        "build",
        TOY,
        "--weights",
        "random",
        "--out",
        str(tmp_path / "out"),
    ]
    child = subprocess.Popen(
        command, stderr=subprocess.PIPE, text=True, env=os.environ | {"PYTHONUNBUFFERED": "1"}
    )
    for line in child.stderr:
        if "rewrite" in line:
            break
    time.sleep(0.5)  # lowering runs now
    child.send_signal(signal.SIGINT)
    _, err = child.communicate(timeout=60)
    assert child.returncode == 130 and "nothing half-written" in err
    assert list(tmp_path.iterdir()) == []


def test_an_interrupt_that_python_swallows_ends_the_step_all_the_same(tmp_path):
    """Raised in a finalizer an exception is printed and forgotten; so it went with Ctrl-C in the
    middle of lowering.
    """
    code = """
import os, signal
from edgeexport.progress import Progress, stop_on_interrupt
class Finalized:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGINT)
        sum(range(100))
stop_on_interrupt()
try:
    with Progress().step("lower"):
        Finalized()
        print("went on")
except KeyboardInterrupt:
    print("stopped")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout == "went on\nstopped\n", done.stderr
