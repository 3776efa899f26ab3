"""Pages that are written from the code: the command line from click, the artifact format from the
JSON Schemas, the Python API from the public names.
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Iterator
from typing import Any

import click
import figures

import edgeexport
from edgeexport.cli.main import COMMANDS, cli

SCHEMAS = ("manifest", "findings", "bench", "profile", "delivery")
"""In the order of the page. Every file of `artifact/schemas` is one of them: a test holds it."""


def prose(text: str) -> str:
    """Text for Markdown, as it is: only what stands in backticks is code."""
    parts = text.split("`")
    parts[::2] = [re.sub(r"([\\|<*_\[\]])", r"\\\1", part) for part in parts[::2]]
    return "`".join(parts)


def command_line() -> str:
    """A section a command: usage, what it does, an example, its options."""
    return "\n".join(_command(name) for name in COMMANDS)


def _command(name: str) -> str:
    command = cli.get_command(click.Context(cli), name)
    context = click.Context(command, info_name=f"edgeexport {name}")
    usage = " ".join((context.info_name, *command.collect_usage_pieces(context)))
    parts = [f"## {name}\n", f"```\n{usage}\n```\n"]
    for paragraph in inspect.cleandoc(command.help or "").split("\n\n"):
        if paragraph.startswith("\b\n"):
            heading, _, lines = paragraph[2:].partition("\n")
            parts.append(f"{prose(heading)}\n\n```\n{inspect.cleandoc(lines)}\n```\n")
        elif paragraph.strip():
            parts.append(f"{prose(' '.join(paragraph.split()))}\n")
    records = (option.get_help_record(context) for option in command.get_params(context))
    rows = [_option(*record) for record in records if record and record[1]]
    return "\n".join((*parts, figures.table(("option", "meaning"), rows)))


def _option(usage: str, meaning: str) -> tuple[str, str]:
    """An option's row; what it takes stands before its meaning, where a long one is broken."""
    name, _, takes = usage.partition(" ") if " / " not in usage else (usage, "", "")
    return f"`{name}`", prose(f"{takes}: {meaning}" if takes else meaning)


def artifact_format() -> str:
    """A section a schema, a table an object in it: fields, types, meaning."""
    folder = figures.ROOT / "edgeexport" / "artifact" / "schemas"
    parts = []
    for name in SCHEMAS:
        schema = json.loads((folder / f"{name}.schema.json").read_text(encoding="utf-8"))
        file = f"`edgeexport/artifact/schemas/{name}.schema.json`"
        parts.append(f"## {name}\n\n{prose(schema['description'])} Schema: {file}.\n")
        for path, node in _objects(schema, ""):
            if path:
                parts.append(f"### `{path}` {{ #{_anchor(name, path)} }}\n")
            parts.append(figures.table(("field", "type", "meaning"), _fields(name, path, node)))
    return "\n".join(parts)


def _fields(schema: str, path: str, node: dict[str, Any]) -> Iterator[tuple[str, str, str]]:
    for field, value in node["properties"].items():
        below = [each for each, _ in _objects(value, f"{path}.{field}".lstrip("."))]
        kind = _kind(value)
        linked = f"[{kind}](#{_anchor(schema, below[0])})" if below else kind
        optional = "" if field in node.get("required", ()) else ", may be absent"
        yield f"`{field}`", linked + optional, prose(_meaning(value))


def _objects(node: dict[str, Any], path: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every object with fields of its own in a schema, outermost first, by its path."""
    if "properties" in node:
        yield path, node
    for field, value in node.get("properties", {}).items():
        yield from _objects(value, f"{path}.{field}".lstrip("."))
    if isinstance(node.get("items"), dict):
        yield from _objects(node["items"], f"{path}[]")
    if isinstance(node.get("additionalProperties"), dict):
        yield from _objects(node["additionalProperties"], f"{path}.NAME")
    for choice in node.get("anyOf", ()):
        yield from _objects(choice, path)


def _kind(node: dict[str, Any]) -> str:
    """The type of a value in words."""
    if "const" in node:
        return f"`{json.dumps(node['const'])}`"
    if "enum" in node:
        return " or ".join(f"`{json.dumps(value)}`" for value in node["enum"])
    if "anyOf" in node:
        return " or ".join(dict.fromkeys(_kind(choice) for choice in node["anyOf"]))
    types = node.get("type", "any value")
    kinds = [types] if isinstance(types, str) else list(types)
    if "array" in kinds:
        inner = _kind(node["items"]) if isinstance(node.get("items"), dict) else "any value"
        kinds[kinds.index("array")] = f"list of {inner}"
    if "object" in kinds and "properties" not in node:
        values = node.get("additionalProperties")
        inner = _kind(values) if isinstance(values, dict) and values else "any value"
        kinds[kinds.index("object")] = f"object of {inner} by name"
    return " or ".join(kinds)


def _meaning(node: dict[str, Any]) -> str:
    """What the schema says of a value, or of what it is a list or a choice of."""
    below = [node.get("items"), node.get("additionalProperties"), *node.get("anyOf", ())]
    said = [node, *(each for each in below if isinstance(each, dict))]
    return next((each["description"] for each in said if "description" in each), "")


def _anchor(schema: str, path: str) -> str:
    return re.sub(r"[^a-z0-9_]+", "-", f"{schema}-{path}".lower()).strip("-")


BESIDE = (
    "edgeexport.build.build_targets",
    "edgeexport.artifact.folder.Artifact",
    "edgeexport.method.Pipeline",
    "edgeexport.method.Option",
    "edgeexport.method.Setup",
)
"""What public names take, return and refer to."""


def python_api_beside() -> str:
    """A section each of BESIDE, for mkdocstrings to fill in."""
    return "\n".join(
        f'::: {name}\n    options:\n      heading_level: 3\n      toc_label: "{name.split(".")[-1]}"\n'
        for name in BESIDE
    )


def python_api() -> str:
    """A section a public name, for mkdocstrings to fill in: functions first."""
    names = sorted(edgeexport.__all__, key=lambda name: (not name.islower(), name))
    return "\n".join(
        f"::: {edgeexport._HOMES[name]}.{edgeexport._FUNCTIONS.get(name, name)}\n"
        f'    options:\n      heading: "edgeexport.{name}"\n      toc_label: "{name}"\n'
        for name in names
    )
