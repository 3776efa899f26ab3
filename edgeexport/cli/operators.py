"""`edgeexport operators`."""

from __future__ import annotations

from pathlib import Path

import click

from edgeexport import text
from edgeexport.cli import display
from edgeexport.errors import CheckFailed


@click.command(name="operators")
@click.argument("programs", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "--yaml",
    "yaml_file",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Write them as selected_operators.yaml, which ExecuTorch's selective build takes.",
)
@click.option("--force", is_flag=True, help="Replace a YAML file that is there.")
@click.option(
    "--runtime",
    metavar="LIBRARY",
    type=click.Path(path_type=Path, exists=True),
    help=(
        "Check that this runtime has them all: a .so, an archive of such (.whl, .aar, .jar, .apk), or a"
        " folder."
    ),
)
@click.option(
    "--size",
    is_flag=True,
    help="Measure what a runtime with only them would take, from executorch's own package for x86-64.",
)
@click.option("--json", "as_json", is_flag=True, help="Print all this as JSON.")
def command(
    programs: tuple[Path, ...],
    yaml_file: Path | None,
    force: bool,
    runtime: Path | None,
    size: bool,
    as_json: bool,
) -> None:
    """List the operators, with their dtypes, and the backends that PROGRAMS (artifacts, archives,
    or any .pte) need of a runtime.

    \b
    Example:
      edgeexport operators build/whisper-tiny.en/xnnpack-fp32 --size
      edgeexport operators build/sam2/xnnpack-fp32 someone_elses.pte --yaml selected_operators.yaml
      edgeexport operators build/sam2/xnnpack-fp32 --runtime libexecutorch.so
    """
    from dataclasses import asdict

    from edgeexport.ship.selective_build import hold, needs, runtime_size, write_yaml

    wanted = needs(programs)
    measured = runtime_size(wanted) if size else None
    verdicts = hold(wanted, runtime) if runtime is not None else ()
    if yaml_file is not None:
        write_yaml(wanted, yaml_file, force)
    if as_json:
        sizes = measured and asdict(measured) | {
            "estimated_bytes": measured.estimated_bytes,
            "everything_bytes": measured.everything_bytes,
        }
        display.print_json(asdict(wanted) | {"runtime": [asdict(v) for v in verdicts], "size": sizes})
    else:
        _print(wanted, verdicts, measured, yaml_file)
    lacking = [verdict for verdict in verdicts if verdict.missing]
    if lacking:
        raise CheckFailed(
            "; ".join(
                f"{runtime} for {verdict.machine} lacks {', '.join(verdict.missing)}" for verdict in lacking
            )
            + "."
        )


def _print(wanted, verdicts, measured, yaml_file: Path | None) -> None:
    console = display.console()
    table = display.table(
        f"Operators outside the delegates: {', '.join(wanted.programs)}",
        "operator",
        "calls",
        "dtypes",
        "methods",
    )
    for operator in wanted.operators:
        table.add_row(
            operator.name, str(operator.calls), ", ".join(operator.dtypes), ", ".join(operator.methods)
        )
    console.print(table)
    console.print(f"Backends: {', '.join(wanted.backends) or 'none'}", soft_wrap=True)
    if yaml_file is not None:
        console.print(f"Written: {yaml_file}", soft_wrap=True)
    if measured is not None:
        _print_size(console, measured)
    for verdict in verdicts:
        names = "all names are there" if not verdict.missing else f"not there: {', '.join(verdict.missing)}"
        console.print(
            f"{display.verdict(not verdict.missing)} {verdict.machine}, {len(verdict.libraries)} libraries,"
            f" {text.size(verdict.size_bytes)}: {names}",
            soft_wrap=True,
        )
    if verdicts:
        console.print(
            "Checked by name only: not for which dtypes a kernel was built, nor whether this version of the"
            " runtime reads the program.",
            soft_wrap=True,
        )


def _print_size(console, measured) -> None:
    table = display.table("A runtime for x86-64 (estimate)", "part", "with these operators", "with all")
    for name, size in measured.library_bytes.items():
        table.add_row(name, text.size(size), text.size(size))
    for name, size in measured.kernel_code_bytes.items():
        table.add_row(f"kernels of {name}", text.size(size), text.size(measured.kernel_library_bytes[name]))
    table.add_row("together", text.size(measured.estimated_bytes), text.size(measured.everything_bytes))
    console.print(table)
    console.print(
        "Kernels: their code that can be reached, for every dtype, in executorch's package; a build for these"
        " dtypes only, or another CPU, differs.",
        soft_wrap=True,
    )
