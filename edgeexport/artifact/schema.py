"""The JSON Schemas in `schemas/`, and what of some data they do not allow."""

from __future__ import annotations

import json
from importlib import resources
from typing import Any


def problem(data: Any, kind: str) -> str | None:
    """The place in `data` that KIND.schema.json does not allow, and why; None without one."""
    import jsonschema.exceptions

    schema = resources.files("edgeexport.artifact").joinpath(f"schemas/{kind}.schema.json")
    validator = jsonschema.Draft202012Validator(json.loads(schema.read_text(encoding="utf-8")))
    error = jsonschema.exceptions.best_match(validator.iter_errors(data))
    if error is None:
        return None
    place = "/".join(map(str, error.absolute_path)) or "the top"
    return f"at {place}: {error.message[:200]}"
