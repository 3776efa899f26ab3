"""`edgeexport package`."""

from __future__ import annotations

from pathlib import Path

import click

from edgeexport import text
from edgeexport.cli import display


@click.command(name="package")
@click.argument("artifact", type=click.Path(path_type=Path))
@click.option("--platform", required=True, metavar="NAME", help="What the app is for: android, ios, cpp.")
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    help="Folder of the project.  [default: PLATFORM beside the artifact]",
)
@click.option(
    "--id",
    "app_id",
    metavar="ID",
    help=(
        "What the package's code is called: com.example.sam2, for cpp edgeexport_sam2.  [default: the model's"
        " name after com.example or edgeexport_]"
    ),
)
@click.option(
    "--executorch-version",
    "runtime_version",
    metavar="VERSION",
    help="The ExecuTorch that the app has.  [default: the one that built the program]",
)
@click.option(
    "--on-demand",
    is_flag=True,
    help="android: leave the program out; the app fetches it when it is first used, and verifies it.",
)
@click.option(
    "--zip",
    "zipped",
    is_flag=True,
    help="Write the project into a zip beside it too: the same bytes for the same project.",
)
@click.option(
    "--classes",
    type=click.Path(path_type=Path),
    metavar="JAR",
    help="android: write an AAR beside the project too, with these compiled classes of its library.",
)
@click.option("--allow-random", is_flag=True, help="Package random weights, to try the app around them.")
@click.option("--allow-failed", is_flag=True, help="Package an artifact whose checks failed.")
@click.option("--force", is_flag=True, help="Replace a package that is there.")
@click.option("--json", "as_json", is_flag=True, help="Print what was written as JSON.")
def command(artifact: Path, platform: str, as_json: bool, **options) -> None:
    """Write ARTIFACT as a library for apps: the program, a typed API, for phones pre- and
    post-processing too, and tests for the device.

    \b
    Example:
      edgeexport package build/sam2/xnnpack-fp32 --platform android --id com.example.sam2
    """
    from edgeexport.ship.mobile import package

    made = package(artifact, platform, progress=display.progress(quiet=as_json), **options)
    if as_json:
        display.print_json(
            {
                "path": str(made.path),
                "files": [str(f) for f in made.files],
                "id": made.app_id,
                "pipeline": made.pipeline,
                "notes": list(made.notes),
            }
        )
        return
    click.echo(f"Packaged in {made.path} ({made.app_id}). Its README.md says how to go on.")
    for file in made.files:
        click.echo(f"Written: {file} ({text.size(file.stat().st_size)}).")
    for note in made.notes:
        click.echo(f"Note: {note}")
