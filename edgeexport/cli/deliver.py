"""`edgeexport deliver`."""

from __future__ import annotations

from pathlib import Path

import click

from edgeexport import text
from edgeexport.cli import display


@click.command(name="deliver")
@click.argument("artifacts", nargs=-1, required=True, metavar="[NAME=]ARTIFACT...")
@click.option(
    "--out",
    required=True,
    type=click.Path(path_type=Path),
    help="Folder of the files, to be put where apps download from.",
)
@click.option(
    "--whole",
    is_flag=True,
    help=(
        "Leave the weights in the programs: for a runtime that takes no .ptd, as ExecuTorch's Module on"
        " Android."
    ),
)
@click.option("--allow-random", is_flag=True, help="Take random weights, to try the download with.")
@click.option("--allow-failed", is_flag=True, help="Take an artifact whose checks failed.")
@click.option("--force", is_flag=True, help="Replace a delivery that is there.")
@click.option("--json", "as_json", is_flag=True, help="Print the download manifest.")
def command(artifacts: tuple[str, ...], out: Path, as_json: bool, **options) -> None:
    """Write the programs of ARTIFACTS as files to download: small programs, their weights in .ptd
    files that they share, sizes and hashes.

    \b
    Example:
      edgeexport deliver build/sam2/xnnpack-fp32 --out cdn
      edgeexport deliver v1=old/xnnpack-fp32 v2=build/whisper-tiny.en/xnnpack-fp32 --out cdn
    """
    from edgeexport.ship.delivery import MANIFEST, deliver

    made = deliver(artifacts, out, progress=display.progress(quiet=as_json), **options)
    if as_json:
        display.print_json(made.contents)
        return
    files = made.contents["files"]
    for name, program in made.contents["programs"].items():
        parts = [program["program"], *program["data"], *filter(None, [program["tokenizer"]])]
        sizes = ", ".join(f"{part} {text.size(files[part]['size_bytes'])}" for part in parts)
        click.echo(
            f"{name}: {sizes}; {program['equal_calls']} calls equal to the whole program's, to the last bit."
        )
    total = sum(facts["size_bytes"] for facts in files.values())
    whole = sum(program["made_of"]["size_bytes"] for program in made.contents["programs"].values())
    click.echo(
        f"Written to {out}: {text.size(total)} in {len(files)} files (whole, the programs are"
        f" {text.size(whole)}). {MANIFEST} says what belongs together."
    )
