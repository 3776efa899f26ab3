"""`edgeexport bundle`."""

from __future__ import annotations

from pathlib import Path

import click

from edgeexport import text
from edgeexport.cli import display


@click.command(name="bundle")
@click.argument("artifacts", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    help="The file, NAME.pt2.  [default: beside the first artifact, named after the model]",
)
@click.option("--force", is_flag=True, help="Replace an archive that is there.")
@click.option("--json", "as_json", is_flag=True, help="Print what was written as JSON.")
def command(artifacts: tuple[Path, ...], out: Path | None, force: bool, as_json: bool) -> None:
    """Write ARTIFACTS of one model into one .pt2 archive, which every command takes as it takes a
    folder.

    ARCHIVE/NAME is one of the artifacts in it; where a command needs one, ARCHIVE alone is the
    first that fits.

    \b
    Example:
      edgeexport bundle build/sam2/xnnpack-fp32 build/sam2/aoti-fp32
      edgeexport check build/sam2/sam2.pt2
      edgeexport run build/sam2/sam2.pt2/aoti-fp32 --image photo.jpg --point 320,240
    """
    from edgeexport.artifact.archive import folders_of
    from edgeexport.artifact.bundle import bundle

    with display.progress(quiet=as_json).step("write and read back"):
        path = bundle(artifacts, out, force)
    names, size_bytes = list(folders_of(path)), path.stat().st_size
    if as_json:
        display.print_json({"path": str(path), "size_bytes": size_bytes, "artifacts": names})
    else:
        click.echo(f"Bundled {', '.join(names)} in {path} ({text.size(size_bytes)}).")
