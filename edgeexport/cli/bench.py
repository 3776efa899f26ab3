"""`edgeexport bench`."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import click

from edgeexport import text
from edgeexport.artifact import validated_json
from edgeexport.cli import display, options
from edgeexport.errors import UsageError


@click.command(name="bench")
@click.argument("artifacts", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "--against",
    metavar="NAME,..",
    help=(
        "What to measure beside them: eager, compile, aoti, onnxruntime, stock.  [default: eager; with --at"
        " nothing]"
    ),
)
@click.option(
    "--baseline",
    metavar="NAME",
    help=(
        "What ratios are to: one of --against, or an artifact's target-precision.  [default: the first of"
        " --against, or the first artifact]"
    ),
)
@click.option(
    "--threads",
    multiple=True,
    type=click.IntRange(1),
    default=(1, 2),
    show_default=True,
    help="A thread count; each has processes of its own.",
)
@click.option(
    "--rounds",
    type=click.IntRange(1),
    default=20,
    show_default=True,
    help="Counted rounds; in each, every contender runs once.",
)
@click.option(
    "--processes",
    type=click.IntRange(1),
    default=3,
    show_default=True,
    help="The rounds are shared among so many, for what differs from one to the next.",
)
@click.option(
    "--size",
    "sizes",
    multiple=True,
    metavar="DIM=N[,N..]",
    help="Sizes of a dynamic dimension.  [default: its least]",
)
@click.option("--method", "methods", multiple=True, help="Only this method; may be given again.")
@click.option(
    "--runner",
    type=click.Choice(["python", "native"]),
    default="python",
    show_default=True,
    help="What runs a `.pte`; native is timed without Python.",
)
@click.option(
    "--model",
    metavar="MODEL",
    help="The code that artifacts of a model of your own were built from, as in `build`: --against needs it.",
)
@click.option(
    "--board",
    metavar="NAME",
    help="The board at --at: a name of `boards/`, or the path of a TOML file of your own.",
)
@click.option(
    "--at",
    metavar="URL",
    help=(
        "Measure .pte on the board itself: ssh://USER@HOST[:PORT], adb://SERIAL, or adb: for the only Android"
        " device."
    ),
)
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    help="Write the figures and all samples to this JSON file, which `edgeexport report` reads.",
)
@click.option("--force", is_flag=True, help="Replace a file that is there.")
@click.option("--json", "as_json", is_flag=True, help="Print the figures as JSON.")
def command(
    artifacts,
    against,
    baseline,
    threads,
    rounds,
    processes,
    sizes,
    methods,
    runner,
    model,
    board,
    at,
    out,
    force,
    as_json,
) -> None:
    """Measure latency and memory of ARTIFACTS of one model beside others, which take turns in the
    same processes.

    \b
    Example:
      edgeexport bench build/sam2/xnnpack-fp32 --against eager,compile --size points=1,3
      edgeexport bench build/sam2/xnnpack-fp32 --board raspberry_pi_5 --at ssh://pi@raspberrypi.local
    """
    from edgeexport.verify.bench import bench

    validated_json.refuse_existing(out, force)
    if board is not None and at is None:
        raise UsageError("--board needs --at, where the board is: measured is what runs there.")
    found = bench(
        artifacts,
        against=None if against is None else [name for name in against.split(",") if name],
        baseline=baseline,
        threads=threads,
        rounds=rounds,
        processes=processes,
        sizes=options.sizes(sizes),
        methods=methods,
        runner={"python": None}.get(runner, runner) if at is None else options.board_at(board, at),
        model=model,
        progress=display.progress(quiet=as_json),
    )
    found["command"] = shlex.join(["edgeexport", *sys.argv[1:]])
    if out is not None:
        validated_json.write(out, found, "bench")
    if as_json:
        display.print_json(found)
    else:
        _print(found)


def _print(found: dict) -> None:
    from rich.markup import escape

    console = display.console()
    machine = found["machine"]
    board = f" ({found['board']} at {found['at']})" if "board" in found else ""
    console.print(f"{found['model']} on {machine['cpu']}, {machine['cores']} cores{board}", soft_wrap=True)
    table = display.table(
        "Latency in ms",
        "method",
        "sizes",
        "threads",
        "",
        "p50",
        "p90",
        "p95",
        "p99",
        "least",
        "mean",
        "first call",
        "load",
        "ratio (spread)",
    )
    for row in found["rows"]:
        where = (row["method"], ", ".join(f"{k}={v}" for k, v in row["sizes"].items()), str(row["threads"]))
        for contender in row["contenders"]:
            if "error" in contender:
                table.add_row(*where, contender["name"], escape(contender["error"]))
                continue
            values = (
                f"{contender[k]:.2f}"
                for k in ("p50_ms", "p90_ms", "p95_ms", "p99_ms", "min_ms", "mean_ms", "first_ms")
            )
            load = "" if contender["load_ms"] is None else f"{contender['load_ms']:.0f}"
            table.add_row(
                *where, contender["name"], *values, load, _ratio(contender["ratio"], row["baseline"])
            )
        table.add_section()
    console.print(table)
    for noise in found["noise"]:
        console.print(
            f"The machine's noise with {noise['threads']} thread{'s'[: noise['threads'] > 1]}: a fixed loop"
            f" of {noise['calibration_ms']['p50']:.1f} ms between the rounds had a spread of"
            f" {100 * noise['spread']:.0f} % (5th to 95th percentile). Spreads of ratios are those of single"
            " rounds, likewise.",
            soft_wrap=True,
        )
    table = display.table("Memory", "artifact", "method", "before", "loaded", "steady", "at most", "planned")
    for entry in found["memory"]:
        values = (
            entry[k]
            for k in (
                "rss_before_bytes",
                "rss_loaded_bytes",
                "rss_steady_bytes",
                "peak_rss_bytes",
                "planned_bytes",
            )
        )
        table.add_row(
            entry["artifact"], entry["method"], *("" if v is None else text.size(v) for v in values)
        )
    console.print(table)


def _ratio(ratio: dict | None, baseline: str) -> str:
    return (
        ""
        if ratio is None
        else f"{ratio['median']:.2f} x {baseline} ({ratio['low']:.2f} to {ratio['high']:.2f})"
    )
