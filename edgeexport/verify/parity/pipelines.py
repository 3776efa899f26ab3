"""Whole pipelines beside each other: the same photo in, the same mask out."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edgeexport.method import Pipeline
from edgeexport.pipelines.media.made_samples import options_of

NUMBERS = 1e-3
"""Scores, coordinates and times of two programs may differ by this much of the larger; text, labels
and token ids by nothing.
"""

PIXELS = 1e-3
"""Share of the pixels of two written pictures that may differ: those at a mask's edge, where a
logit is near 0.
"""


VISIBLE = 8
"""Levels of 256 by which a pixel may differ unseen."""


@dataclass(frozen=True)
class Difference:
    """One place in the results of two sides where they differ by more than is allowed."""

    sides: str
    place: str
    one: str
    other: str


def run_pipeline(program, pipeline: Pipeline, folder: Path, given: Mapping[str, Any]) -> dict[str, Any]:
    """Run on samples drawn the same for every side, or on what is `given` by option name; written
    files become part of the result.
    """
    options, written = options_of(pipeline, folder, given)
    result = dict(pipeline.run(program, **options))
    result |= {
        name: json.loads(path.read_bytes())
        for name, path in written.items()
        if path.is_file() and not _is_picture(path)
    }
    # What a caption calls the program, and where files are: there sides differ, and should.
    kept = _comparable(
        result,
        f"{program.manifest.target} {program.manifest.precision}",
        {v for v in options.values() if isinstance(v, str)},
    )
    return kept | {
        name: {"picture": str(path)} for name, path in written.items() if path.is_file() and _is_picture(path)
    }


def _comparable(value: Any, ours: str, paths: set[str]) -> Any:
    if isinstance(value, Mapping):
        return {
            k: _comparable(v, ours, paths)
            for k, v in value.items()
            if not (isinstance(v, str) and v in paths)
        }
    if isinstance(value, (list, tuple)):
        return [_comparable(v, ours, paths) for v in value]
    return value.replace(ours, "") if isinstance(value, str) else value


def _is_picture(path: Path) -> bool:
    return path.read_bytes()[:1] not in (b"[", b"{")


def shown(value: Any) -> Any:
    """A result to keep: pictures were compared, and are gone with the folder they were in."""
    if isinstance(value, Mapping):
        return "a picture" if set(value) == {"picture"} else {k: shown(v) for k, v in value.items()}
    return [shown(v) for v in value] if isinstance(value, list) else value


def compare_results(results: Mapping[str, Any]) -> Iterator[Difference]:
    """Where the pipelines' results differ, pair by pair."""
    for one, other in itertools.combinations(results, 2):
        for place, left, right in _different(results[one], results[other], "result"):
            yield Difference(f"{one} ~ {other}", place, str(left)[:120], str(right)[:120])


def _different(one: Any, other: Any, place: str) -> Iterator[tuple[str, Any, Any]]:
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        if set(one) == set(other) == {"picture"}:
            share = _pixels_that_differ(one["picture"], other["picture"])
            if share > PIXELS:
                yield place, "a picture", f"{share:.2%} of its pixels differ"
            return
        for key in dict.fromkeys((*one, *other)):
            left, right = one.get(key), other.get(key)
            if key.endswith("_pixels") and isinstance(left, int):
                left = float(left)  # an area: measured, not counted out
            yield from _different(left, right, f"{place}.{key}")
    elif isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        left = list(enumerate(other))
        for index, item in enumerate(one):
            # Things that are ranked may change places where their scores are equal but for
            # rounding.
            found = next(
                (
                    pair
                    for pair in _nearest(left, index)
                    if not any(True for _ in _different(item, pair[1], ""))
                ),
                None,
            )
            if found is None:
                yield from _different(item, other[index], f"{place}[{index}]")
            else:
                left.remove(found)
    elif isinstance(one, float) and isinstance(other, (int, float)):
        if not abs(one - other) <= NUMBERS * max(abs(one), abs(other), 1.0):
            yield place, one, other
    elif one != other:
        yield place, one, other


def _nearest(pairs: list[tuple[int, Any]], index: int) -> list[tuple[int, Any]]:
    """The item at `index` first; of things, not of numbers and words, also the others, nearest
    first.
    """
    return [
        p
        for p in sorted(pairs, key=lambda p: abs(p[0] - index))
        if p[0] == index or isinstance(p[1], Mapping)
    ]


def _pixels_that_differ(one: str, other: str) -> float:
    import numpy as np
    from PIL import Image

    left, right = (np.asarray(Image.open(path)).astype(int) for path in (one, other))
    if left.shape != right.shape:
        return 1.0
    apart = abs(left - right)
    if apart.ndim == 3:
        apart = apart.max(axis=-1)
    return float((apart > VISIBLE).mean())
