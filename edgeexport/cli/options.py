"""What several commands read in the same way."""

from __future__ import annotations

from edgeexport.errors import UsageError


def board_at(board: str | None, at: str) -> str:
    """The runtime of the board that is at an address.

    Raises UsageError for no such board, or no address.
    """
    from edgeexport.runtime import boards
    from edgeexport.runtime.program import Runtime
    from edgeexport.runtime.remote import kind_of

    if board is None:
        raise UsageError("--at needs the --board that is there.")
    boards.board(board)
    kind_of(at)
    return str(Runtime("native", board, at))


def sizes(texts: tuple[str, ...]) -> dict[str, list[int]]:
    """DIM=N or DIM=N,N.. of `--size`, by dimension. Raises UsageError."""
    return dict(_sizes(text) for text in texts)


def size(texts: tuple[str, ...]) -> dict[str, int]:
    """DIM=N of `--size`, by dimension. Raises UsageError."""
    several = next((text for text in texts if "," in text), None)
    if several is not None:
        raise UsageError(f"--size {several}: one size a dimension here, for example batch=4.")
    return {name: numbers[0] for name, numbers in sizes(texts).items()}


def _sizes(text: str) -> tuple[str, list[int]]:
    name, _, numbers = text.partition("=")
    if not name or not all(number.isdigit() for number in numbers.split(",")):
        raise UsageError(f"--size {text}: write DIM=N, for example batch=4.")
    return name, [int(number) for number in numbers.split(",")]
