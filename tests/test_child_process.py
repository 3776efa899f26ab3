"""Work in a child process: what it answers, raises, and how its crash is told."""

import logging
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from edgeexport.errors import RuntimeFault, UnknownName, UsageError
from edgeexport.runtime.child_process import ChildCrashed, Report, run_as_child, run_child


def main(request, report: Report):
    """The child of these tests: does what the request says."""
    report.stage("begin")
    report.result({"number": 1})
    report.stage(request["do"])
    match request["do"]:
        case "answer":
            return {"twice": 2 * request["number"]}
        case "raise":
            raise UsageError("It cannot be done so.")
        case "raise a kind with other arguments":
            raise UnknownName("method", "clasify", ["classify"])
        case "raise another's":
            raise LookupError("not ours")
        case "crash":
            os.kill(os.getpid(), signal.SIGSEGV)
        case "exit":
            print("first\nsecond\nthird\nlast words", file=sys.stderr, flush=True)
            os._exit(3)
        case "sleep":
            Path(request["pid"]).write_text(str(os.getpid()))
            time.sleep(60)


@pytest.fixture(autouse=True)
def importable(monkeypatch):
    paths = str(Path(__file__).parent), str(Path(__file__).parents[1])
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(paths))


def run(do, **request):
    return run_child("test_child_process", {"do": do, **request}, "the trying process")


def test_a_child_answers_and_says_where_it_is_and_what_it_found():
    outcome = run("answer", number=21)
    assert outcome.answered() == {"twice": 42} and outcome.error is None
    assert outcome.results == ({"number": 1},) and outcome.stage == "answer"


def test_the_peak_is_the_child_s_own_not_what_its_parent_had():
    ballast = bytearray(os.urandom(1 << 20)) * 400
    assert 5e6 < run("answer", number=1).peak_rss_bytes < len(ballast)


def test_an_error_of_ours_comes_back_as_it_was_raised():
    outcome = run("raise")
    assert type(outcome.error) is UsageError and outcome.error.exit_code == 2
    with pytest.raises(UsageError, match="^It cannot be done so.$"):
        outcome.answered()
    with pytest.raises(UnknownName, match="^There is no method 'clasify'. Did you mean 'classify'"):
        run("raise a kind with other arguments").answered()


@pytest.mark.parametrize(
    ("do", "said"),
    [
        ("crash", r"^The trying process was ended by SIGSEGV at: crash\."),
        ("exit", r"ended with exit code 3 at: exit\. second \| third \| last words$"),
        ("raise another's", "ended with exit code 1 at: raise another's.*LookupError: not ours$"),
    ],
)
def test_a_crash_is_told_with_how_where_and_last_words(do, said, caplog):
    caplog.set_level(logging.INFO, "edgeexport")
    outcome = run(do)
    assert isinstance(outcome.error, ChildCrashed) and outcome.error.exit_code == 1
    assert outcome.results == ({"number": 1},) and outcome.answer is None
    with pytest.raises(RuntimeFault, match=said):
        outcome.answered()
    if do == "exit":
        assert "first\nsecond" in caplog.text  # the log has all of it


def test_a_child_that_cannot_start_is_a_crash(monkeypatch):
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(ChildCrashed, match="ended with exit code 1 at: starting"):
        run("answer", number=1).answered()


def test_a_child_ends_with_an_interrupted_parent(tmp_path):
    pid = tmp_path / "pid"
    code = (
        "from edgeexport.runtime.child_process import run_child\n"
        f"run_child('test_child_process', {{'do': 'sleep', 'pid': {str(pid)!r}}}, 'the child')"
    )
    parent = subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.PIPE, text=True)
    while not pid.exists() or not pid.read_text():
        assert parent.poll() is None
        time.sleep(0.05)
    parent.send_signal(signal.SIGINT)
    assert "KeyboardInterrupt" in parent.communicate(timeout=30)[1]
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid.read_text()), 0)


if __name__ == "__main__":
    run_as_child(main)
