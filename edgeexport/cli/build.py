"""`edgeexport build`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from edgeexport import text
from edgeexport.artifact.targets import targets
from edgeexport.cli import display


def _settings(command):
    """An option for each setting that a target has."""
    by_name = {}
    for target in targets().values():
        for setting in target.settings:
            by_name.setdefault(setting.name, []).append((target.name, setting))
    for name, found in reversed(by_name.items()):
        _, setting = found[0]
        text = f"{', '.join(target for target, _ in found)}: {setting.help}"
        kind: dict[str, Any] = {"metavar": setting.metavar} if setting.metavar else {"is_flag": True}
        command = click.option(f"--{name.replace('_', '-')}", help=text, **kind)(command)
    return command


@click.command(name="build")
@click.argument("model")
@click.option(
    "--target",
    "wanted",
    multiple=True,
    default=("xnnpack",),
    show_default=True,
    help="What to build for, more than once for several from one capture; see `edgeexport models`.",
)
@click.option(
    "--precision",
    default="fp32",
    show_default=True,
    help="Numbers that the program computes with; `edgeexport models` lists those of each target.",
)
@click.option(
    "--calibration",
    default="samples",
    show_default=True,
    metavar="samples|noise|DIR",
    help="What static ranges are found with: the samples of the inputs; these, though they are noise; or a"
    " folder of photos, sounds, clips or .safetensors.",
)
@click.option(
    "--weights",
    default="pretrained",
    show_default=True,
    metavar="pretrained|random[:SEED]|PATH",
    help="Weights: released ones, seeded random ones, or a checkpoint file.",
)
@click.option("--batch", metavar="MIN:MAX", help="Range of the batch dimension.  [default: the model's own]")
@_settings
@click.option(
    "--board",
    metavar="NAME",
    help="What the program must fit, before and after lowering; its CPU is what aoti compiles for.",
)
@click.option(
    "--out",
    "outs",
    multiple=True,
    type=click.Path(path_type=Path),
    help="Folder to write, one a target.  [default: build/MODEL/TARGET-PRECISION]",
)
@click.option("--force", is_flag=True, help="Replace an artifact that is there.")
@click.option(
    "--skip-pass",
    "skip_passes",
    multiple=True,
    metavar="NAME",
    help="Leave out a rewrite, to find out what it does.",
)
@click.option(
    "--json", "as_json", is_flag=True, help="Print the manifest as JSON; a list of them for several targets."
)
def command(model: str, wanted: tuple[str, ...], outs: tuple[Path, ...], as_json: bool, **options) -> None:
    """Build MODEL for a target, check the emitted file, and write the artifact folder.

    MODEL is a name from `edgeexport models`, or your own as pkg.module:OBJECT or file.py:OBJECT.

    \b
    Example:
      edgeexport build sam2 --target xnnpack --weights random
      edgeexport build mvit --target xnnpack --batch 1:16 --weights mvit_v1_b.pth
      edgeexport build whisper --target xnnpack --target aoti
      edgeexport build yolo11n-pose --precision int8 --calibration photos
    """
    from edgeexport import catalog
    from edgeexport.errors import UsageError

    catalog.require(model, wanted, options["precision"])
    if outs and len(outs) != len(wanted):
        raise UsageError(
            f"{len(wanted)} targets need {len(wanted)} folders: give --out once a target, or not at all."
        )
    from edgeexport.build import build_targets

    artifacts = build_targets(
        model, targets=wanted, outs=outs or None, progress=display.progress(quiet=as_json), **options
    )
    if as_json:
        manifests = [artifact.manifest.to_json() | {"path": str(artifact.path)} for artifact in artifacts]
        display.print_json(manifests if len(manifests) > 1 else manifests[0])
        return
    for artifact in artifacts:
        _print(artifact)


def _print(artifact) -> None:
    from rich.markup import escape

    timings = artifact.manifest.timings
    console = display.console()
    console.print(display.findings_table(artifact.manifest.findings))
    if artifact.manifest.weights.random:
        console.print(
            "[yellow]The weights are random: right for numerics and speed, meaningless as answers.[/yellow]"
        )
    calibration = artifact.manifest.recipe.calibration
    if calibration is not None:
        console.print(f"Calibrated with {calibration.calls} calls ({calibration.source}).")
        for line in calibration.skipped:
            console.print(f"[yellow]skipped {escape(line)}[/yellow]", soft_wrap=True)
    peak = max(timings.peak_rss_bytes, timings.check_peak_rss_bytes or 0)
    console.print(
        f"Built {artifact.path} in {timings.wall_s:.0f} s, peak memory {text.size(peak)}.", soft_wrap=True
    )
