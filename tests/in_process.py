"""The command line without a process of its own, which takes seconds to import PyTorch and
ExecuTorch; tests/test_cli.py and runtime_tests start it for real.
"""

import contextlib
import io
import signal
import subprocess
import sys
from unittest import mock

from edgeexport.cli.main import main


def run_command(*arguments) -> subprocess.CompletedProcess:
    """What `edgeexport ARGUMENTS` prints, and its exit code."""
    command, code = ["edgeexport", *map(str, arguments)], 0
    out, err, interrupt = io.StringIO(), io.StringIO(), signal.getsignal(signal.SIGINT)
    with (
        mock.patch.object(sys, "argv", command),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        try:
            main()
        except SystemExit as ended:
            code = ended.code or 0
        finally:
            signal.signal(signal.SIGINT, interrupt)
    return subprocess.CompletedProcess(command, code, out.getvalue(), err.getvalue())
