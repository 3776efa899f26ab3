"""JSON files that commands hand to one another, each held against its JSON Schema in this
package.
"""

from __future__ import annotations

import json
from importlib import resources
from pathlib import Path
from typing import Any

from edgeexport.errors import UsageError, foreign_errors

KINDS = ("bench", "profile", "findings", "delivery")
"""Latency of contenders, time by operator, what `edgeexport check --json` prints, what is to be
downloaded: each has KIND.schema.json.
"""


def read(path: str | Path, kind: str) -> dict[str, Any]:
    """The content of a file of one of KINDS.

    Raises UsageError that names the file and the place in it that is wrong.
    """
    path = Path(path)
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"{path} cannot be read ({error.strerror}).") from error
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise UsageError(f"{path} is not JSON ({error}).") from error
    validate(data, kind, path)
    return data


def refuse_existing(path: Path | None, force: bool) -> None:
    """Raises UsageError, before any work, when there is a file already and `force` was not
    given.
    """
    if path is not None and path.exists() and not force:
        raise UsageError(f"{path} is there already. Give --force to replace it, or another --out.")


def write(path: Path, data: dict[str, Any], kind: str) -> None:
    """Write a file of one of KINDS, held against its schema; whole or not at all."""
    text = json.dumps(data, indent=1) + "\n"
    validate(json.loads(text), kind, path)
    with foreign_errors(str(path)):
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_name(f".{path.name}.partial")
        partial.write_text(text, encoding="utf-8")
        partial.replace(path)


def validate(data: Any, kind: str, where: Path | str) -> None:
    """Raises UsageError with `where` and the place in `data` that the schema of `kind` does not
    allow.
    """
    import jsonschema.exceptions

    schema = json.loads(
        resources.files("edgeexport.artifact")
        .joinpath(f"schemas/{kind}.schema.json")
        .read_text(encoding="utf-8")
    )
    error = jsonschema.exceptions.best_match(jsonschema.Draft202012Validator(schema).iter_errors(data))
    if error is not None:
        place = "/".join(map(str, error.absolute_path)) or "the top"
        raise UsageError(
            f"{where} is not a {kind} file that this version reads: at {place}: {error.message[:200]}."
        )
