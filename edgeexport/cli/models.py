"""`edgeexport models`."""

from __future__ import annotations

import click

from edgeexport import catalog
from edgeexport.artifact.targets import targets
from edgeexport.cli import display


@click.command(name="models")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(as_json: bool) -> None:
    """List models and targets.

    \b
    Example:
      edgeexport models --json
    """
    models, known = catalog.variants(), targets()
    if as_json:
        listed = [
            {"name": n, "aliases": list(f["aliases"]), "summary": f["summary"]} for n, f in models.items()
        ]
        display.print_json(
            {
                "models": listed,
                "targets": [
                    {"name": t.name, "summary": t.summary, "precisions": t.precisions} for t in known.values()
                ],
            }
        )
        return
    for name, facts in models.items():
        also = f" (also {', '.join(facts['aliases'])})" if facts["aliases"] else ""
        click.echo(f"{name:16} {facts['summary']}{also}")
    click.echo()
    for target in known.values():
        click.echo(f"--target {target.name:10} {target.summary}; --precision {', '.join(target.precisions)}")
