"""`edgeexport report`."""

from __future__ import annotations

from pathlib import Path

import click

from edgeexport import text
from edgeexport.cli import display

FILE = click.Path(path_type=Path)


@click.command(name="report")
@click.argument("artifacts", nargs=-1, required=True, type=FILE)
@click.option(
    "--bench", "benches", multiple=True, type=FILE, help="A file of latencies; may be given several times."
)
@click.option(
    "--profile",
    "profiles",
    multiple=True,
    type=FILE,
    help="A file of where the time goes; may be given several times.",
)
@click.option(
    "--findings",
    multiple=True,
    type=FILE,
    help="What `edgeexport check --json` printed, with a --board say; may be given several times.",
)
@click.option("--out", type=FILE, help="The page.  [default: report.html beside the first artifact]")
@click.option("--force", is_flag=True, help="Replace a page that is there.")
@click.option("--json", "as_json", is_flag=True, help="Print what was written as JSON.")
def command(
    artifacts: tuple[Path, ...],
    benches: tuple[Path, ...],
    profiles: tuple[Path, ...],
    findings: tuple[Path, ...],
    out: Path | None,
    force: bool,
    as_json: bool,
) -> None:
    """Write one page about ARTIFACTS (folders, or archives): checks, numerics, memory, methods,
    code for an app; several are compared.

    The page needs no network. It is of one model or of several; files that are given must be about
    the artifacts' weights or programs.

    \b
    Example:
      edgeexport report build/sam2/xnnpack-fp32
      edgeexport check build/sam2/xnnpack-fp32 --board raspberry_pi_5 --json > pi.json
      edgeexport report build/sam2/xnnpack-fp32 --findings pi.json --out sam2.html
    """
    from edgeexport.verify.report import report

    with display.progress(quiet=as_json).step("write the page"):
        path = report(artifacts, benches, profiles, findings, out, force)
    if as_json:
        display.print_json({"path": str(path), "size_bytes": path.stat().st_size})
    else:
        click.echo(f"Written: {path} ({text.size(path.stat().st_size)})")
