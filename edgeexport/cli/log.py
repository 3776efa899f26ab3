"""Where what libraries write goes: to a file, one a run, and the terminal is for what edgeexport
itself says.

PyTorch and ExecuTorch write lines for their developers from Python and from C++, some of them while
they are imported: so it is the file descriptor that is turned, for the whole command.
"""

from __future__ import annotations

import contextlib
import datetime
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

KEPT = 20
"""Logs of earlier runs beyond these are removed."""

_terminal: TextIO | None = None


def terminal() -> TextIO:
    """Where people read what goes wrong and what is under way: standard error as it was."""
    return _terminal or sys.stderr


def is_apart() -> bool:
    """Whether what libraries write does not go to the terminal."""
    return _terminal is not None


@contextlib.contextmanager
def libraries_apart() -> Iterator[Path | None]:
    """Within it, what is written to standard error goes to a file, whose path this is; `terminal()`
    is where it went before. None, and all goes to the terminal, where no log can be written.

    An empty file is removed, and so are the oldest; of an error that is not ours, the traceback is
    in it too.
    """
    global _terminal
    earlier = sys.stderr
    try:
        saved = os.dup(2)
        path, descriptor = _new_log()
    except OSError:  # there is no standard error, or no place for a log
        yield None
        return
    earlier.flush()
    os.dup2(descriptor, 2)
    os.close(descriptor)
    ours = open(saved, "w", buffering=1, encoding=earlier.encoding, errors=earlier.errors)
    if _descriptor(earlier) == 2:
        _terminal = ours
    else:  # it was replaced, by a test's stream for one
        _terminal = earlier
        # Never closed: handlers of libraries that are made now go on to write to it.
        sys.stderr = open(2, "w", buffering=1, errors="backslashreplace", closefd=False)
    try:
        yield path
    except Exception:
        import traceback

        traceback.print_exc()
        print(f"This should not have happened. What led to it is in {path}.", file=_terminal)
        raise
    finally:
        sys.stderr.flush()
        os.dup2(saved, 2)
        sys.stderr, _terminal = earlier, None
        ours.close()
        _sweep(path)


def has_content(path: Path | None) -> bool:
    """Whether anything was logged."""
    return path is not None and path.exists() and path.stat().st_size > 0


def _new_log() -> tuple[Path, int]:
    """A file for this run, and a descriptor that writes to it."""
    import platformdirs

    folder = platformdirs.user_log_path("edgeexport")
    folder.mkdir(parents=True, exist_ok=True)
    now = datetime.datetime.now().strftime("%Y%m%d-%H%M%S")
    path = folder / f"{now}-{os.getpid()}.log"
    return path, os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)


def _sweep(path: Path) -> None:
    """Another process may remove the same at the same time."""
    with contextlib.suppress(OSError):
        if not has_content(path):
            path.unlink()
        for old in sorted(path.parent.glob("*.log"))[:-KEPT]:
            old.unlink()


def _descriptor(stream: TextIO) -> int | None:
    try:
        return stream.fileno()
    except (OSError, ValueError, AttributeError):
        return None
