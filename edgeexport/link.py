"""A link step on a finished `.pte`: a weight that is stored as a constant and as a delegate's weight is stored once.

A tied embedding is both: the lookup reads a constant of the program, the head a weight that XNNPACK packs when it loads. ExecuTorch
removes doubles among constants and among delegates' weights, not between the two (a third of Whisper's file, a tenth of BLIP's).
Segments may overlap: the runtime reads each by offset and size.
"""

from __future__ import annotations

from pathlib import Path

from executorch.exir._serialize._flatbuffer_program import _flatbuffer_to_program, _program_to_flatbuffer
from executorch.exir._serialize._program import _ExtendedHeader, _get_extended_header, _insert_flatbuffer_header
from executorch.exir._serialize.padding import aligned_size, pad_to
from executorch.exir.schema import DataSegment, Program
from executorch.exir.tensor import ALIGNMENT

SHARED_LEAST_BYTES = 4096
"""Smaller doubles are left: a segment costs more than they do."""

_SEGMENT_ALIGNMENT = 128  # as ExecuTorch writes them
_ALIGNMENT_LIMIT = 4096


def share_segments(path: Path) -> int:
    """Store each named weight whose bytes are also a constant of the program once. Returns the bytes saved.

    The file is rewritten only when that saves anything; the schema's own reader and writer do the work.
    """
    data = memoryview(path.read_bytes())
    header = _get_extended_header(data[:64].tobytes())
    if header is None:
        return 0
    program = _flatbuffer_to_program(data[: header.program_size].tobytes())
    segments = data[header.segment_base_offset :]
    shared = _found_among_constants(program, segments)
    if not shared:
        return 0
    body = _laid_out_again(program, segments, shared)
    path.write_bytes(_with_header(program, body))
    return len(data) - path.stat().st_size


def _found_among_constants(program: Program, segments: memoryview) -> dict[int, int]:
    """Segments that hold a named weight whose bytes are a constant: index → offset within the constant segment."""
    if not program.constant_segment or not program.constant_segment.offsets:
        return {}
    home = program.segments[program.constant_segment.segment_index]
    starts = [*program.constant_segment.offsets, home.size]
    constants: dict[int, list[int]] = {}  # by size, where a constant may be followed by padding
    for start, end in zip(starts, starts[1:]):
        constants.setdefault((end - start) // ALIGNMENT, []).append(start)
    shared = {}
    for index in {entry.segment_index for entry in program.named_data or ()}:
        segment = program.segments[index]
        if segment.size < SHARED_LEAST_BYTES:
            continue
        wanted = segments[segment.offset : segment.offset + segment.size]
        for start in constants.get(aligned_size(segment.size, ALIGNMENT) // ALIGNMENT, ()):
            if segments[home.offset + start : home.offset + start + segment.size] == wanted:
                shared[index] = start
                break
    return shared


def _laid_out_again(program: Program, segments: memoryview, shared: dict[int, int]) -> bytearray:
    """The segments without the shared ones; `program.segments` is changed to where everything is now."""
    body = bytearray()
    before = list(program.segments)
    for index, segment in enumerate(before):
        if index in shared:
            continue
        alignment = max(_SEGMENT_ALIGNMENT, min(_ALIGNMENT_LIMIT, segment.offset & -segment.offset))
        body.extend(bytes(aligned_size(len(body), alignment) - len(body)))
        program.segments[index] = DataSegment(offset=len(body), size=segment.size)
        body += segments[segment.offset : segment.offset + segment.size]
    home = program.segments[program.constant_segment.segment_index]
    for index, start in shared.items():
        program.segments[index] = DataSegment(offset=home.offset + start, size=before[index].size)
    return body


def _with_header(program: Program, body: bytearray) -> bytes:
    """The file: the flatbuffer with its extended header, padding, the segments."""
    flatbuffer = _program_to_flatbuffer(program, constant_tensor_alignment=ALIGNMENT, delegate_alignment=None)
    header_size = aligned_size(_ExtendedHeader.EXPECTED_LENGTH, flatbuffer.max_alignment)
    program_size = header_size + len(flatbuffer.data)
    base = aligned_size(program_size, _SEGMENT_ALIGNMENT)
    header = pad_to(_ExtendedHeader(program_size, base, len(body)).to_bytes(), header_size)
    head = _insert_flatbuffer_header(bytes(flatbuffer.data), r"ET[0-9a-zA-Z][0-9a-zA-Z]", header)
    return b"".join([head, bytes(base - program_size), body])
