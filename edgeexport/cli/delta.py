"""`edgeexport delta`."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import click

from edgeexport import text
from edgeexport.cli import display


@click.command(name="delta")
@click.argument("old", type=click.Path(path_type=Path))
@click.argument("new", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print it as JSON.")
def command(old: Path, new: Path, as_json: bool) -> None:
    """Say what who has OLD downloads for NEW: two deliveries, packages or artifacts.

    A file counts whole, or not at all where OLD has one with the same content. Of programs and data
    files it is said what of them are weights that OLD has already: what `edgeexport deliver` would
    save.

    \b
    Example:
      edgeexport delta cdn-1.0 cdn-1.1
      edgeexport delta android-1.0 android-1.1
    """
    from edgeexport.ship.delta import delta

    found = delta(old, new)
    if as_json:
        totals = {
            "size_bytes": found.size_bytes,
            "download_bytes": found.download_bytes,
            "known_bytes": found.known_bytes,
        }
        display.print_json(dataclasses.asdict(found) | totals)
        return
    console, same = display.console(), [file for file in found.files if not file.download_bytes]
    table = display.table(None, "file", "size", "to download", "weights in it that OLD has")
    for file in found.files:
        if file.download_bytes:
            table.add_row(
                display.plain(file.name),
                text.size(file.size_bytes),
                text.size(file.download_bytes),
                text.size(file.known_bytes) if file.known_bytes else "",
            )
    if table.row_count:
        console.print(table)
    console.print(
        f"{len(same)} files are the same, {text.size(sum(file.size_bytes for file in same))}. Gone:"
        f" {', '.join(found.gone) or 'nothing'}.",
        soft_wrap=True,
        markup=False,
    )
    console.print(f"To download: {text.size(found.download_bytes)} of {text.size(found.size_bytes)}.")
