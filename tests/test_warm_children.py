"""Children that begin with everything imported do and end as others do (tests/warm_children.py)."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

WARM = "edgeexport.runtime.aoti"
"""What a child of this file has only where it was there before it began."""


def child(do, *arguments):
    """What the child of these tests does."""
    print(json.dumps([do, *arguments, os.getcwd(), os.environ["PATH"], WARM in sys.modules]), flush=True)
    match do:
        case "answer":
            print("on stderr", file=sys.stderr)
        case "exit":
            sys.exit(3)
        case "say":
            sys.exit("said")
        case "raise":
            raise LookupError("lost")
        case "crash":
            os.kill(os.getpid(), signal.SIGSEGV)
        case "sleep":
            Path(arguments[0]).write_text(str(os.getpid()))
            time.sleep(60)


if __name__ == "__main__":
    child(*sys.argv[1:])
    sys.exit()

import pytest  # noqa: E402, which a child does without
from conftest import shared_folder  # noqa: E402
from warm_children import READ_AT_THE_START  # noqa: E402


@pytest.fixture(autouse=True)
def real(warm_children, tmp_path_factory, monkeypatch):
    """The real interpreter; libraries that other tests imported (Ultralytics) have set variables
    that are not the server's, and are taken back.
    """
    if warm_children is None:
        pytest.skip("children are not warm: EDGEEXPORT_TEST_CHILDREN=cold, or no Linux")
    of_the_server = shared_folder(tmp_path_factory) / "children" / "environment.json"
    server = json.loads(of_the_server.read_text()) if of_the_server.exists() else dict(os.environ)
    for name in [name for name in server.keys() | os.environ if name.startswith(READ_AT_THE_START)]:
        monkeypatch.delenv(name, raising=False)
        if name in server:
            monkeypatch.setenv(name, server[name])
    return warm_children


def start(python, *arguments, **options):
    command = [python, "-m", "test_warm_children", *map(str, arguments)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(command, cwd=Path(__file__).parent, **pipes, **options)


@pytest.mark.parametrize("do", ["answer", "exit", "say", "raise", "crash"])
def test_a_warm_child_ends_as_a_real_one(real, do, monkeypatch):
    monkeypatch.setenv("PATH", f"/of/this/test:{os.environ['PATH']}")
    ends = []
    for python in (real, sys.executable):
        process = start(python, do)
        out, err = process.communicate()
        *same, warm = json.loads(out)
        assert warm == (python != real)
        ends.append((same, err.splitlines()[-1:], process.returncode))
    assert ends[0] == ends[1] and ends[0][0][2].startswith("/of/this/test:")


def test_a_child_ends_with_its_client(tmp_path):
    pid = tmp_path / "pid"
    process = start(sys.executable, "sleep", pid)
    while not pid.exists() or not pid.read_text():
        assert process.poll() is None
        time.sleep(0.02)
    process.kill()
    process.communicate()  # its streams are closed as the child ends
    for _ in range(100):
        if not Path(f"/proc/{pid.read_text()}").exists():
            return
        time.sleep(0.05)
    raise AssertionError("the child goes on")


def test_what_libraries_read_when_they_are_loaded_is_never_that_of_another(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    out, _ = start(sys.executable, "answer").communicate()
    assert json.loads(out)[-1] is False
