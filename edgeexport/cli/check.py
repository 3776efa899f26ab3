"""`edgeexport check`."""

from __future__ import annotations

from pathlib import Path

import click

from edgeexport.cli import display
from edgeexport.errors import CheckFailed


@click.command(name="check")
@click.argument("artifact", type=click.Path(path_type=Path))
@click.option("--runner", type=click.Choice(["python", "native"]), default="python", show_default=True, help="What runs the program: native is the C++ runtime of an app, without Python.")
@click.option("--json", "as_json", is_flag=True, help="Print the findings as JSON.")
def command(artifact: Path, runner: str, as_json: bool) -> None:
    """Check ARTIFACT from its files alone: hashes, loading, numerics, bounds, memory, delegation.

    \b
    Example:
      edgeexport check build/sam2/xnnpack-fp32
      edgeexport check build/sam2/xnnpack-fp32 --runner native
    """
    from edgeexport.artifact import open_artifacts
    from edgeexport.checks import run_checks, to_json

    findings = []
    for opened in open_artifacts(artifact):
        with display.progress(quiet=as_json).step(f"check the files of {opened.side}"):
            found = [to_json(f) | {"artifact": opened.side} for f in run_checks(opened, None if runner == "python" else runner)[0]]
        findings += found
        if not as_json:
            display.console().print(display.findings_table(found))
    failed = [f for f in findings if not f["passed"]]
    if as_json:
        display.print_json({"passed": not failed, "findings": findings})
    if failed:
        raise CheckFailed(f"{len(failed)} of {len(findings)} checks failed: " + "; ".join(f"{f['check']}: {f['measured']}. {f['message']}" for f in failed))
