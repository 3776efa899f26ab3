"""What commands print with: a live line for the running step, tables, JSON."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from edgeexport.cli import log
from edgeexport.progress import Progress

if TYPE_CHECKING:
    from edgeexport.method import Finding


def progress(quiet: bool) -> Progress:
    """Steps on standard error, each with its time; nothing when `quiet`."""
    if quiet:
        return Progress()
    from rich.console import Console

    console = Console(file=log.terminal(), highlight=False)
    if not console.is_terminal:
        return Progress(on_end=lambda name, seconds: console.print(f"  {name}: {seconds:.1f} s"))
    return _live(console)


def _live(console) -> Progress:
    """On a terminal: a spinner with the step and its running time."""
    from rich.progress import Progress as Live
    from rich.progress import SpinnerColumn, TextColumn, TimeElapsedColumn

    live: list[Live] = []

    def start(name: str) -> None:
        live.append(
            Live(
                SpinnerColumn(),
                TextColumn("{task.description}"),
                TimeElapsedColumn(),
                console=console,
                transient=True,
                redirect_stderr=not log.is_apart(),
            )
        )
        live[-1].start()
        live[-1].add_task(name)

    def end(name: str, seconds: float) -> None:
        live.pop().stop()
        console.print(f"  [green]done[/green] {name}: {seconds:.1f} s")

    def fail(name: str) -> None:
        live.pop().stop()
        console.print(f"  [red]stopped[/red] {name}")

    return Progress(start, end, fail)


def print_json(value: Any) -> None:
    json.dump(value, sys.stdout, indent=2)
    sys.stdout.write("\n")


def console():
    """Standard output; wide enough for tables when it is not a terminal."""
    from rich.console import Console

    plain = Console(highlight=False)
    return plain if plain.is_terminal else Console(highlight=False, width=160)


def table(title: str | None, *columns: str):
    from rich.table import Table

    made = Table(title=title, title_justify="left", header_style="bold")
    for column in columns:
        made.add_column(column, overflow="fold")
    return made


def verdict(passed: bool) -> str:
    return "[green]ok[/green]" if passed else "[red]FAILED[/red]"


def findings_table(findings: Iterable[Finding]) -> Any:
    """Findings: verdict, measured beside allowed."""
    made = table("Checks", "", "check", "method", "measured", "allowed")
    for finding in findings:
        made.add_row(
            verdict(finding.passed),
            finding.check,
            finding.method or "",
            plain(finding.measured),
            plain(finding.limit),
        )
    return made


def plain(text: str) -> str:
    """Text that is nobody's markup."""
    from rich.markup import escape

    return escape(text)
