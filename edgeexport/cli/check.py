"""`edgeexport check`."""

from __future__ import annotations

from pathlib import Path

import click

from edgeexport.cli import display, options
from edgeexport.errors import CheckFailed, UsageError


@click.command(name="check")
@click.argument("artifact", type=click.Path(path_type=Path))
@click.option(
    "--runner",
    type=click.Choice(["python", "native"]),
    default="python",
    show_default=True,
    help="What runs the program: native is the C++ runtime of an app, without Python.",
)
@click.option(
    "--board",
    metavar="NAME",
    help="Also: does it fit this board? A name of `boards/`, or the path of a TOML file of your own.",
)
@click.option(
    "--emulate",
    is_flag=True,
    help="Run it on the board's CPU, emulated by qemu: the least case of each method.",
)
@click.option(
    "--at",
    metavar="URL",
    help=(
        "Run it on the board itself: ssh://USER@HOST[:PORT], adb://SERIAL, or adb: for the only Android"
        " device."
    ),
)
@click.option(
    "--method",
    "methods",
    multiple=True,
    metavar="NAME",
    help="Run only this method; may be given again.  [default: all]",
)
@click.option("--json", "as_json", is_flag=True, help="Print the findings as JSON.")
def command(
    artifact: Path,
    runner: str,
    board: str | None,
    emulate: bool,
    at: str | None,
    methods: tuple[str, ...],
    as_json: bool,
) -> None:
    """Check ARTIFACT from its files alone: hashes, loading, numerics, bounds, memory, delegation.

    \b
    Example:
      edgeexport check build/sam2/xnnpack-fp32
      edgeexport check build/sam2/xnnpack-fp32 --runner native
      edgeexport check build/sam2/xnnpack-fp32 --board raspberry_pi_5 --emulate
      edgeexport check build/sam2/xnnpack-fp32 --board raspberry_pi_5 --at ssh://pi@pi.local
    """
    from edgeexport.artifact.folder import open_artifacts
    from edgeexport.artifact.manifest import to_json
    from edgeexport.runtime import boards
    from edgeexport.runtime.program import Runtime
    from edgeexport.verify.checks import run_checks

    if emulate and at is not None:
        raise UsageError("--emulate and --at cannot both be: a board is emulated here, or it is there.")
    if emulate and board is None:
        raise UsageError("--emulate needs a --board to emulate.")
    runtime = {"python": None}.get(runner, runner)
    if at is not None:
        runtime = options.board_at(board, at)
    elif board is not None:
        boards.board(board)
        runtime = str(Runtime("native", board)) if emulate else runtime
    findings = []
    for opened in open_artifacts(artifact):
        with display.progress(quiet=as_json).step(f"check the files of {opened.side}"):
            about = {"artifact": opened.side, "program_sha256": opened.manifest.program_file.sha256}
            found = run_checks(opened, runtime, board or "", methods)[0]
        findings += [to_json(finding) | about for finding in found]
        if not as_json:
            display.console().print(display.findings_table(found))
    failed = [f for f in findings if not f["passed"]]
    if as_json:
        display.print_json({"passed": not failed, "findings": findings})
    if failed:
        raise CheckFailed(
            f"{len(failed)} of {len(findings)} checks failed: "
            + "; ".join(f"{f['check']}: {f['measured']}. {f['message']}" for f in failed)
        )
