"""Real input to real output: one file a pipeline, with PIPELINE, found by its name."""

from __future__ import annotations

import importlib
from pathlib import Path

from edgeexport.errors import UnknownName
from edgeexport.method import Pipeline

NAMES = tuple(sorted(path.stem for path in Path(__file__).parent.glob("[a-z]*.py")))
"""All there are. A manifest names some of these, and can name nothing else."""


def pipeline(name: str) -> Pipeline:
    """A pipeline by name. Raises UnknownName."""
    if name not in NAMES:
        raise UnknownName("pipeline", name, NAMES)
    return importlib.import_module(f"edgeexport.pipelines.{name}").PIPELINE
