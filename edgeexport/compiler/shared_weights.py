"""A link step on a finished `.pte`: a weight that is stored as a constant and as a delegate's
weight is stored once.

A tied embedding is both: the lookup reads a constant of the program, the head a weight that XNNPACK
packs when it loads. ExecuTorch removes doubles among constants and among delegates' weights, not
between the two (a third of Whisper's file, a tenth of BLIP's).
"""

from __future__ import annotations

from pathlib import Path

from edgeexport.artifact.pte import ALIGNMENT
from edgeexport.artifact.pte_segments import ProgramFile

SHARED_LEAST_BYTES = 4096
"""Smaller doubles are left: a segment costs more than they do."""


def share_segments(path: Path) -> int:
    """Store each named weight whose bytes are also a constant of the program once.

    Returns the bytes saved.

    The file is rewritten only when that saves anything.
    """
    file = ProgramFile.read(path)
    if file is None:
        return 0
    shared = _found_among_constants(file)
    if not shared:
        return 0
    before = path.stat().st_size
    file.write(path, within=shared)
    return before - path.stat().st_size


def _found_among_constants(file: ProgramFile) -> dict[int, tuple[int, int]]:
    """Segments that hold a named weight whose bytes are a constant: number → that of the constants'
    segment, and where in it.
    """
    contents, constants = file.constants(), {}  # numbers by size, where a constant may be followed by padding
    for index, content in enumerate(contents):
        constants.setdefault(len(content) // ALIGNMENT, []).append(index)
    home, shared = file.program.constant_segment, {}
    for number in {entry.segment_index for entry in file.program.named_data or ()}:
        wanted = file.segments[number]
        if len(wanted) < SHARED_LEAST_BYTES:
            continue
        for index in constants.get(-(-len(wanted) // ALIGNMENT), ()):
            if contents[index][: len(wanted)] == wanted:
                shared[number] = (home.segment_index, home.offsets[index])
                break
    return shared
