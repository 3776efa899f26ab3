"""A `.pte` as a file, and the data files (`.ptd`) beside it, read and written by ExecuTorch's own
readers and writers of their schemas.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from edgeexport.artifact.light_executorch import light_executorch
from edgeexport.artifact.pte import ALIGNMENT, HEADER_BYTES, ExtendedHeader, parsed

if TYPE_CHECKING:
    from executorch.exir.schema import Program
    from executorch.exir.tensor_layout import TensorLayout

_SEGMENT_ALIGNMENT = 128  # as ExecuTorch writes them
_ALIGNMENT_LIMIT = 4096


@dataclass
class ProgramFile:
    """A program, and the bytes of each of its segments by number; where they lie in the file is
    decided when it is written.
    """

    program: Program
    segments: list[memoryview]

    @classmethod
    def read(cls, path: Path) -> ProgramFile | None:
        """The `.pte` at `path`, which is known to be whole; None for one without segments, as
        ExecuTorch can write it too.
        """
        data = memoryview(path.read_bytes())
        header = ExtendedHeader.read(data[:HEADER_BYTES].tobytes())
        if header is None:
            return None
        program = parsed(data[: header.program_bytes].tobytes())
        base = header.segments_at
        return cls(program, [data[base + s.offset : base + s.offset + s.size] for s in program.segments])

    @light_executorch()
    def write(self, path: Path, within: Mapping[int, tuple[int, int]] = MappingProxyType({})) -> None:
        """Write it to `path`.

        `within` are segments whose bytes are found in another: number → that one's number, and
        where in it.

        Segments may overlap: the runtime reads each by offset and size.
        """
        from executorch.exir.schema import DataSegment

        body = bytearray()
        for index, content in enumerate(self.segments):
            if index in within:
                continue
            before = self.program.segments[index].offset
            alignment = max(_SEGMENT_ALIGNMENT, min(_ALIGNMENT_LIMIT, before & -before))
            body.extend(bytes(-len(body) % alignment))
            self.program.segments[index] = DataSegment(offset=len(body), size=len(content))
            body += content
        for index, (home, start) in within.items():
            self.program.segments[index] = DataSegment(
                offset=self.program.segments[home].offset + start, size=len(self.segments[index])
            )
        path.write_bytes(_with_header(self.program, body))

    def constants(self) -> list[memoryview]:
        """The program's own constants by number, each with what pads it; number 0 is none."""
        place = self.program.constant_segment
        if not place or not place.offsets:
            return []
        home = self.segments[place.segment_index]
        return [home[start:end] for start, end in zip(place.offsets, [*place.offsets[1:], len(home)])]

    def set_constants(self, contents: Sequence[memoryview | bytes]) -> None:
        """Put these in place of the constants."""
        place, body = self.program.constant_segment, bytearray()
        place.offsets = []
        for content in contents:
            place.offsets.append(len(body))
            body += content
            body.extend(bytes(-len(body) % ALIGNMENT))
        self.segments[place.segment_index] = memoryview(bytes(body))
        if not body:
            place.offsets = [
                0
            ]  # number 0 alone: an empty list is how ExecuTorch before 0.2 wrote constants, and is refused

    def drop_unused(self) -> None:
        """Remove the segments that nothing refers to, and number the others anew."""
        references = list(_references(self.program))
        kept = sorted({getattr(holder, attribute) for holder, attribute in references})
        number = {old: new for new, old in enumerate(kept)}
        for holder, attribute in references:
            setattr(holder, attribute, number[getattr(holder, attribute)])
        self.segments = [self.segments[old] for old in kept]
        self.program.segments = [self.program.segments[old] for old in kept]


@dataclass(frozen=True)
class Weight:
    """What a data file has under a name: its bytes, and what tensor they are where the program
    itself reads them (a delegate knows without).
    """

    content: memoryview
    layout: TensorLayout | None = None

    @cached_property
    def sha256(self) -> str:
        return hashlib.sha256(self.content).hexdigest()


@light_executorch()
def write_data_file(path: Path, weights: Mapping[str, Weight]) -> None:
    """Write a `.ptd`; bytes that have several names are there once."""
    from executorch.exir._serialize.data_serializer import DataEntry, DataPayload
    from executorch.extension.flat_tensor.serialize.serialize import FlatTensorSerializer

    contents = {weight.sha256: weight.content for weight in weights.values()}
    place = {sha256: index for index, sha256 in enumerate(contents)}
    entries = {
        name: DataEntry(place[weight.sha256], ALIGNMENT, weight.layout) for name, weight in weights.items()
    }
    payload = DataPayload([bytes(content) for content in contents.values()], entries)
    with open(path, "wb") as file:
        FlatTensorSerializer().serialize(payload).write_to_file(file)


@light_executorch()
def read_data_file(path: Path) -> list[Any]:
    """What is in a `.ptd`, which is known to be whole."""
    from executorch.exir._serialize._cord import Cord
    from executorch.extension.flat_tensor.serialize.serialize import FlatTensorSerializer

    return list(FlatTensorSerializer().deserialize(Cord(path.read_bytes())).buffers)


def _references(program: Program) -> Iterator[tuple[Any, str]]:
    """Each place in a program that names a segment by its number: what holds it, and its attribute
    there.
    """
    if program.constant_segment and program.constant_segment.offsets:
        yield program.constant_segment, "segment_index"
    for holder in (*(program.mutable_data_segments or ()), *(program.named_data or ())):
        yield holder, "segment_index"
    for plan in program.execution_plan:
        for delegate in plan.delegates:
            if delegate.processed.location.name == "SEGMENT":
                yield delegate.processed, "index"


def _with_header(program: Program, body: bytearray) -> bytes:
    """The file: the flatbuffer with its extended header, padding, the segments."""
    from executorch.exir._serialize._flatbuffer_program import _program_to_flatbuffer
    from executorch.exir._serialize._program import _ExtendedHeader, _insert_flatbuffer_header
    from executorch.exir._serialize.padding import aligned_size, pad_to

    flatbuffer = _program_to_flatbuffer(program, constant_tensor_alignment=ALIGNMENT, delegate_alignment=None)
    header_size = aligned_size(_ExtendedHeader.EXPECTED_LENGTH, flatbuffer.max_alignment)
    program_size = header_size + len(flatbuffer.data)
    base = aligned_size(program_size, _SEGMENT_ALIGNMENT)
    extended = _ExtendedHeader(program_size, base, len(body)).to_bytes()
    header = pad_to(extended, header_size)
    head = _insert_flatbuffer_header(bytes(flatbuffer.data), r"ET[0-9a-zA-Z][0-9a-zA-Z]", header)
    return b"".join([head, bytes(base - program_size), body])
