"""`edgeexport profile`."""

from __future__ import annotations

from pathlib import Path

import click

from edgeexport.artifact import validated_json
from edgeexport.cli import display, options

SHOWN = 12
"""Lines of source that are printed."""


@click.command(name="profile")
@click.argument("artifact", type=click.Path(path_type=Path))
@click.option(
    "--method",
    "methods",
    multiple=True,
    metavar="NAME",
    help="Profile this method only; may be given again.  [default: all]",
)
@click.option(
    "--size",
    "sizes",
    multiple=True,
    metavar="DIM=N",
    help="Size of a dynamic dimension.  [default: the least]",
)
@click.option(
    "--calls",
    type=click.IntRange(1),
    default=10,
    show_default=True,
    help="Recorded calls of each method; the quickest quarter counts.",
)
@click.option("--threads", type=click.IntRange(1), help="Threads of the runtime.  [default: its own choice]")
@click.option(
    "--keep",
    type=click.Path(path_type=Path, file_okay=False),
    help="Folder for the ETDump and a bundled program (.bpte) with the recorded cases.",
)
@click.option(
    "--out",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write the profile to this JSON file, which `edgeexport report` reads.",
)
@click.option("--force", is_flag=True, help="Replace files that are there.")
@click.option("--json", "as_json", is_flag=True, help="Print the profile as JSON.")
def command(
    artifact: Path,
    methods: tuple[str, ...],
    sizes: tuple[str, ...],
    calls: int,
    threads: int | None,
    keep: Path | None,
    out: Path | None,
    force: bool,
    as_json: bool,
) -> None:
    """Where the time of ARTIFACT goes, per operator and line of the model; what is not delegated,
    why, and what would fix it.

    \b
    Example:
      edgeexport profile build/whisper-tiny.en/xnnpack-fp32 --method decode_step --threads 1
    """
    from edgeexport.verify.profile import profile

    validated_json.refuse_existing(out, force)
    with display.progress(quiet=as_json).step("record events"):
        found = profile(artifact, methods, options.size(sizes), calls, threads, keep, force)
    if out is not None:
        validated_json.write(out, found.to_json(), "profile")
    if as_json:
        display.print_json(found.to_json())
        return
    _print(found)
    if keep is not None:
        click.echo(
            f"\nKept in {keep}: the ETDump, and a bundled program with the recorded cases (without those that"
            " start from a state: such a case is one call)."
        )


def _print(found) -> None:
    console = display.console()
    for method in sorted(found.methods, key=lambda m: -_share(m)):
        console.print(_sentence(method), soft_wrap=True, markup=False)
    console.print(
        f"\nMeans over the quickest quarter of {found.calls} calls, {found.threads}"
        f" thread{'s' * (found.threads > 1)}, while every operator's events were recorded. That takes time of"
        " its own: read the shares, and measure latency without it (edgeexport bench).",
        soft_wrap=True,
    )
    for method in found.methods:
        console.print()
        console.print(_operators_table(method))
        if method.lines:
            console.print(_lines_table(method))


def _share(method) -> float:
    return method.costliest_outside.share if method.costliest_outside else 0.0


def _sentence(method) -> str:
    from edgeexport.artifact.pte import plain_name

    worst = method.costliest_outside
    if worst is None:
        return f"{method.method}: every operator is in a delegate."
    calls = f"{worst.calls} call{'s' * (worst.calls > 1)}"
    return (
        f"{plain_name(worst.operator)}: {worst.share:.1%} of {method.method}, {calls}, not delegated because:"
        f" {worst.reason}; fix: {worst.fix}."
    )


def _operators_table(method):
    sizes = ", ".join(f"{name}={size}" for name, size in method.sizes.items())
    least, most = method.range_ms
    title = (
        f"{method.method}{f' ({sizes})' if sizes else ''}: {method.total_ms:.2f} ms with events recorded"
        f" (calls took {least:.2f} to {most:.2f} ms), {method.accounted_ms / method.total_ms:.1%} of it below"
    )
    table = display.table(
        title, "operator", "delegated", "calls", "ms", "share", "not delegated because", "fix"
    )
    for o in method.operators:
        delegated = {True: "yes", False: "[yellow]no[/yellow]", None: ""}[o.delegated]
        table.add_row(
            o.operator,
            delegated,
            "" if o.delegated is None else str(o.calls),
            f"{o.time_ms:.3f}",
            f"{o.share:.1%}",
            o.reason,
            o.fix,
        )
    return table


def _lines_table(method):
    table = display.table(f"{method.method}: lines of the model", "line", "module", "ms", "share")
    for line in method.lines[:SHOWN]:
        table.add_row(
            line.source, line.module, f"{line.time_ms:.3f}", f"{line.time_ms / method.total_ms:.1%}"
        )
    rest = sum(line.time_ms for line in method.lines[SHOWN:])
    if rest:
        table.add_row(f"{len(method.lines) - SHOWN} more", "", f"{rest:.3f}", f"{rest / method.total_ms:.1%}")
    return table
