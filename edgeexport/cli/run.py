"""`edgeexport run`: the options after the artifact are those of its model's pipeline."""

from __future__ import annotations

from pathlib import Path

import click

from edgeexport.cli import display
from edgeexport.errors import UsageError


@click.command(name="run", context_settings={"ignore_unknown_options": True}, add_help_option=False)
@click.argument("artifact", type=click.Path(path_type=Path), required=False)
@click.argument("rest", nargs=-1, type=click.UNPROCESSED)
@click.option(
    "--pipeline",
    "chosen",
    metavar="NAME",
    help=(
        "A pipeline of the artifact's, or one of your own as pkg.module:OBJECT or file.py:OBJECT."
        "  [default: the first that the artifact names]"
    ),
)
@click.pass_context
def command(ctx: click.Context, artifact: Path | None, rest: tuple[str, ...], chosen: str | None) -> None:
    """Run ARTIFACT on real input. `edgeexport run ARTIFACT --help` lists what its pipeline takes.

    \b
    Example:
      edgeexport run build/sam2/xnnpack-fp32 --image photo.jpg --point 320,240 --overlay mask.png
      edgeexport run build/mvit/xnnpack-fp32 --video clip.mp4
    """
    if artifact is None or str(artifact) == "--help":
        click.echo(ctx.get_help())
        return
    from edgeexport import catalog
    from edgeexport.artifact.folder import open_artifact

    opened = open_artifact(artifact)
    chosen = chosen or next(iter(opened.manifest.pipelines or ()), None)
    if not chosen:
        raise UsageError(
            f"{opened.manifest.model.name} has no pipeline: call its methods with tensors through"
            " edgeexport.open(), or name a pipeline with --pipeline."
        )
    _command(opened, catalog.pipeline(chosen)).main(
        [*rest], prog_name=f"edgeexport run {artifact}", standalone_mode=False
    )


def _command(opened, pipeline) -> click.Command:
    """A click command with the options of a pipeline."""
    params: list[click.Parameter] = [_option(o) for o in pipeline.options]
    params.append(
        click.Option(
            ["--threads"],
            type=click.IntRange(min=1),
            help="Threads of the runtime.  [default: its own choice]",
        )
    )
    params.append(click.Option(["--json", "as_json"], is_flag=True, help="Print JSON."))

    def call(threads: int | None, as_json: bool, **values) -> None:
        from edgeexport.runtime.program import Program

        result = pipeline.run(Program(opened, threads), **values)
        if as_json:
            display.print_json(result)
        else:
            _print(result)

    example = f"\b\nExample:\n  edgeexport run {opened.name} {pipeline.example}"
    return click.Command(
        "run", callback=call, params=params, help=f"Run {opened.manifest.model.name}.\n\n{example}"
    )


def _option(option) -> click.Option:
    kind = {"number": int, "text": str, "file": click.Path(), "output": click.Path()}[option.kind]
    return click.Option(
        [f"--{option.name}", option.name.replace("-", "_")],
        type=kind,
        help=option.help,
        multiple=option.multiple,
        required=option.required,
        default=() if option.multiple else option.default,
        show_default=option.default is not None,
    )


def _print(result: dict) -> None:
    for key, value in result.items():
        if isinstance(value, list) and value and isinstance(value[0], dict):
            click.echo(f"{key}:")
            for item in value:
                click.echo("  " + "  ".join(_short(v) for v in item.values()))
        elif isinstance(value, list):
            click.echo(f"{key}: {' '.join(map(_short, value))}")
        elif value is not None:
            click.echo(f"{key}: {_short(value)}")


def _short(value) -> str:
    return f"{value:.4f}" if isinstance(value, float) else str(value)
