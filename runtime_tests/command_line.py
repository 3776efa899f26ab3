"""Runs the command line as a user does."""

import subprocess
import sys


def edgeexport(*arguments, check=True):
    """The finished process; with `check`, it must have succeeded."""
    done = subprocess.run(
        [sys.executable, "-m", "edgeexport", *map(str, arguments)], capture_output=True, text=True
    )
    assert not check or done.returncode == 0, done.stderr + done.stdout
    return done
