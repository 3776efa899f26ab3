"""What can go wrong, and what the command line answers with.

    EdgeExportError
    ├── UsageError          exit 2: what was asked for cannot be done as asked
    │   ├── UnknownName         a model, target or precision that does not exist (with the nearest)
    │   ├── WeightsError        a checkpoint that is missing, damaged, of another model, or code
    │   ├── InputError          a tensor or a file that a method or pipeline does not take
    │   └── ArtifactError       a folder that is no artifact, is damaged, exists, or is not writable
    ├── CaptureError        exit 1: torch.export gave no program that may be used
    ├── RewriteError        exit 1: a pass broke the program
    ├── LoweringError       exit 1: the backend refused the program
    ├── RuntimeFault        exit 1: the runtime refused or failed to run an emitted file
    └── CheckFailed         exit 1: the artifact was built, and a check of it failed

Every message says what was wrong, where, and what to do. Exceptions of other
libraries are translated where they are called, from ``foreign_errors``.
"""

from __future__ import annotations

import contextlib
import difflib
import errno
from collections.abc import Iterable, Iterator


class EdgeExportError(Exception):
    """Base of all errors that this package raises on purpose."""

    exit_code = 1


class UsageError(EdgeExportError):
    """What was asked for cannot be done as asked."""

    exit_code = 2


class UnknownName(UsageError):
    """A name that no model, target or precision has."""

    def __init__(self, kind: str, name: str, known: Iterable[str]):
        known = sorted(known)
        near = difflib.get_close_matches(name, known, n=1, cutoff=0.4)
        hint = f"Did you mean '{near[0]}'? " if near else ""
        super().__init__(f"There is no {kind} '{name}'. {hint}Known: {', '.join(known)}.")


class WeightsError(UsageError):
    """A checkpoint that is missing, damaged, of another model, or carries code."""


class InputError(UsageError):
    """A tensor or a file that a method or pipeline does not take."""


class ArtifactError(UsageError):
    """A folder that is not an artifact, is damaged, exists already or cannot be written."""


class CaptureError(EdgeExportError):
    """torch.export gave no program that may be used."""


class RewriteError(EdgeExportError):
    """A pass broke the program."""


class LoweringError(EdgeExportError):
    """The backend refused the program."""


class RuntimeFault(EdgeExportError):
    """The runtime refused or failed to run an emitted file."""


class CheckFailed(EdgeExportError):
    """The artifact was built, and a check of it failed."""


_OS_ADVICE = {
    errno.ENOSPC: "the disk is full: free some space, or choose another --out",
    errno.EDQUOT: "the disk quota is used up: free some space, or choose another --out",
    errno.EROFS: "the file system is read-only: choose another --out",
    errno.EACCES: "no permission to write there: choose another --out",
    errno.EPERM: "no permission to write there: choose another --out",
    errno.EEXIST: "a part of the path is a file, not a folder: choose another --out",
    errno.ENOTDIR: "a part of the path is a file, not a folder: choose another --out",
}


@contextlib.contextmanager
def foreign_errors(where: str) -> Iterator[None]:
    """Translate the file system's errors about writing `where` into ArtifactError."""
    try:
        yield
    except OSError as error:
        if error.errno not in _OS_ADVICE:
            raise
        raise ArtifactError(f"Cannot write {where}: {_OS_ADVICE[error.errno]}.") from error
