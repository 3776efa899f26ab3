"""What libraries write goes to a log file that an error names; the terminal is edgeexport's."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from edgeexport.cli.log import KEPT

NOISY = """
import logging, os, sys
import click
from edgeexport.cli import log, main
from edgeexport.errors import LoweringError, UsageError
@click.command()
def noisy():
    os.write(2, b"from C++\\n")
    print("from Python", file=sys.stderr)
    logging.getLogger("torch").error("from a logger")
    logging.getLogger("edgeexport.any").info("from ours")
    click.echo("under way", file=log.terminal())
    print("the answer")
    raise {error}("It went wrong.")
main.cli = noisy
sys.argv = ["edgeexport"]
main.main()
"""


@pytest.fixture
def run(tmp_path):
    """Runs the noisy command, which ends with an error; what it printed, and the texts of its
    logs.
    """

    def run(error, **environment):
        done = subprocess.run(
            [sys.executable, "-c", NOISY.format(error=error)],
            capture_output=True,
            text=True,
            env=os.environ | {"XDG_STATE_HOME": str(tmp_path)} | environment,
        )
        return done, {path: path.read_text() for path in sorted(tmp_path.rglob("*.log"))}

    return run


def test_lines_of_libraries_are_in_the_file_that_the_error_names(run):
    done, logs = run("LoweringError")
    ((path, logged),) = logs.items()
    said = ["under way", "Error: It went wrong.", f"What the libraries said of it is in {path}."]
    assert done.returncode == 1 and done.stderr.splitlines() == said and done.stdout == "the answer\n"
    assert all(f"from {source}" in logged for source in ("C++", "Python", "a logger", "ours"))


def test_wrong_use_names_no_log(run):
    done, _ = run("UsageError")
    assert done.returncode == 2 and done.stderr == "under way\nError: It went wrong.\n"


def test_a_fault_of_ours_shows_its_traceback_and_logs_it(run):
    done, logs = run("LookupError")
    ((path, logged),) = logs.items()
    assert done.returncode == 1 and "LookupError: It went wrong." in done.stderr
    assert "This should not have happened" in done.stderr and str(path) in done.stderr
    assert "LookupError: It went wrong." in logged and "from C++" not in done.stderr


def test_debug_shows_everything_and_a_place_that_cannot_be_written_too(run, tmp_path):
    done, logs = run("LoweringError", EDGEEXPORT_LOG="debug")
    assert not logs and re.search("from C.*from Python.*from a logger", done.stderr, re.DOTALL)
    (tmp_path / "file").touch()
    done, logs = run("LoweringError", XDG_STATE_HOME=str(tmp_path / "file"))
    assert not logs and "from C++" in done.stderr and done.stderr.endswith("Error: It went wrong.\n")


def test_old_logs_and_empty_ones_are_removed(run, tmp_path):
    run("LoweringError")
    (folder,) = {path.parent for path in tmp_path.rglob("*.log")}
    for number in range(KEPT + 5):
        (folder / f"20200101-0000{number:02}-1.log").write_text("old")
    _, logs = run("LoweringError")
    assert len(logs) == KEPT and len([text for text in logs.values() if text != "old"]) == 2
    command = [sys.executable, "-m", "edgeexport", "models"]
    done = subprocess.run(
        command, capture_output=True, text=True, env=os.environ | {"XDG_STATE_HOME": str(tmp_path / "x")}
    )
    assert done.returncode == 0 and not list(Path(tmp_path / "x").rglob("*.log"))
