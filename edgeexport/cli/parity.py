"""`edgeexport parity`."""

from __future__ import annotations

from pathlib import Path

import click

from edgeexport.cli import display
from edgeexport.errors import ArtifactError, CheckFailed, UsageError

SHOWN = 8
"""Differences that are printed."""


@click.command(name="parity")
@click.argument("artifacts", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "--input",
    "inputs",
    multiple=True,
    metavar="OPTION=VALUE",
    help=(
        "What the pipeline runs on, as in `edgeexport run`: audio=speech.wav.  [default: a sample that is"
        " made]"
    ),
)
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    help="Folder for parity.json and parity.html.  [default: none is written]",
)
@click.option("--force", is_flag=True, help="Replace a report that is there.")
@click.option("--json", "as_json", is_flag=True, help="Print the figures as JSON.")
def command(
    artifacts: tuple[Path, ...], inputs: tuple[str, ...], out: Path | None, force: bool, as_json: bool
) -> None:
    """Compare what ARTIFACTS of one model say: with eager and with each other, method by method and
    as whole pipelines.

    \b
    Example:
      edgeexport parity build/whisper/xnnpack-fp32 build/whisper/aoti-fp32 --out parity
    """
    from edgeexport.verify.parity import FILES, parity, write

    options = dict(_pair(text) for text in inputs)
    taken = [out / name for name in FILES if out is not None and (out / name).exists()]
    if taken and not force:
        raise ArtifactError(f"{taken[0]} is there already. Give --force to replace it, or another --out.")
    with display.progress(quiet=as_json).step("ask every side"):
        found = parity(artifacts, options)
    if out is not None:
        write(found, out)
    if as_json:
        display.print_json(found.to_json())
    else:
        _print(found, out)
    if not found.passed:
        failed = [f"{line.method} {line.pair}" for line in found.lines if not line.passed] + [
            d.place for d in found.differences
        ]
        raise CheckFailed(f"{len(failed)} comparisons failed: {', '.join(failed[:8])}.")


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise UsageError(f"--input {text}: write OPTION=VALUE, for example image=photo.jpg.")
    return name, value


def _print(found, out: Path | None) -> None:
    from rich.markup import escape

    from edgeexport.verify.parity import FILES

    table = display.table(
        f"Parity of {found.model}",
        "",
        "method",
        "pair",
        "cases",
        "max abs",
        "/ range",
        "SQNR",
        "task metric",
        "allowed",
        "worst case",
    )
    for line in found.lines:
        metrics = ", ".join(f"{name} {value:.5f}" for name, value in line.metrics.items())
        table.add_row(
            display.verdict(line.passed),
            line.method,
            line.pair,
            str(line.cases),
            f"{line.max_abs:.1e}",
            f"{line.max_abs_relative:.1e}",
            f"{line.sqnr_db:.0f} dB",
            metrics,
            line.allowed,
            line.message or line.worst_case,
        )
    console = display.console()
    console.print(table)
    for difference in found.differences[:SHOWN]:
        console.print(
            f"[red]FAILED[/red] {difference.sides}: {difference.place}: {difference.one!r} and"
            f" {difference.other!r}",
            soft_wrap=True,
        )
    if len(found.differences) > SHOWN:
        console.print(
            f"and {len(found.differences) - SHOWN} more differences (--json, or --out, has them all)"
        )
    for place in found.places:
        console.print(f"[yellow]located[/yellow] {escape(place)}", soft_wrap=True)
    if len(found.pipeline) > 1 and not found.differences:
        console.print(f"[green]ok[/green] the whole pipeline says the same: {', '.join(found.pipeline)}")
    if out is not None:
        console.print(f"Written: {', '.join(str(out / name) for name in FILES)}", soft_wrap=True)
