"""`edgeexport show`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from edgeexport import text
from edgeexport.cli import display

if TYPE_CHECKING:
    from edgeexport.artifact.manifest import Manifest, MethodEntry

SHOWN = 300
"""Characters of a constant that are printed."""


@click.command(name="show")
@click.argument("artifact", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print the manifest, or what is in the .pte, as JSON.")
def command(artifact: Path, as_json: bool) -> None:
    """Show ARTIFACT, or each of an archive: methods, inputs and outputs, sizes, versions, findings.

    For a .pte alone, of edgeexport or not, it is what the file says: tensors, backends, operators,
    memory, constants.

    \b
    Example:
      edgeexport show build/sam2/xnnpack-fp32
      edgeexport show someone_elses.pte
    """
    from edgeexport.artifact.folder import open_artifacts
    from edgeexport.artifact.pte import is_program

    if is_program(artifact):
        _show_program(artifact, as_json)
        return
    manifests = [opened.manifest for opened in open_artifacts(artifact)]
    if as_json:
        said = [manifest.to_json() for manifest in manifests]
        display.print_json(said if len(said) > 1 else said[0])
        return
    console = display.console()
    for manifest in manifests:
        _print_head(console, manifest)
        for method in manifest.methods:
            _print_method(console, method)
        console.print(display.findings_table(manifest.findings))


def _print_head(console, manifest: Manifest) -> None:
    weights, model, timings = manifest.weights, manifest.model, manifest.timings
    console.print(f"[bold]{model.name}[/bold]: {model.summary}")
    console.print(
        f"  target {manifest.target}, {manifest.precision}, built {manifest.created} in"
        f" {timings.wall_s:.0f} s"
    )
    console.print(f"  source {model.source.repository} ({model.source.licence})", soft_wrap=True)
    console.print(
        f"  weights {weights.origin}, {text.size(weights.size_bytes)}, sha256 {weights.sha256[:16]}...",
        soft_wrap=True,
    )
    for rule in manifest.recipe.rules or ():
        where = f"methods {rule.methods}, operators {rule.operators}, modules {rule.modules}"
        console.print(f"  numbers {rule.kind}: {where}", soft_wrap=True, markup=False)
    for name, file in manifest.files.items():
        console.print(f"  file {name}: {text.size(file.size_bytes)}, sha256 {file.sha256[:16]}...")
    console.print("  versions " + ", ".join(f"{k} {v}" for k, v in manifest.versions.items()), soft_wrap=True)


def _print_method(console, method: MethodEntry) -> None:
    tensors = display.table(
        f"{method.name} (captured {method.capture.mode})",
        "",
        "name",
        "dtype",
        "shape",
        "range",
        "layout",
        "meaning",
    )
    for spec in method.inputs:
        bounds = " to ".join(f"{v:g}" for v in spec.range) if spec.range else ""
        tensors.add_row(
            "in",
            spec.name,
            spec.dtype,
            _shape(spec.shape),
            f"{bounds} {spec.unit or ''}".strip(),
            spec.layout,
            spec.meaning,
        )
    for output in method.outputs:
        tensors.add_row(
            "out", output.name, output.dtype, _shape(output.shape_at_least), "", "contiguous", output.meaning
        )
    console.print(tensors)
    for dim in method.dims:
        verified = "not verified" if dim.verified is None else "verified {} to {}".format(*dim.verified)
        console.print(
            f"  {dim.name}: asked {dim.asked[0]} to {dim.asked[1]}, {verified} at"
            f" {', '.join(map(str, dim.sizes))}"
        )
    if delegation := method.delegation:
        console.print(
            f"  {delegation.delegates} delegates with {delegation.delegated_nodes} nodes; planned"
            f" memory {text.size(method.planned_memory_bytes or 0)}"
        )
        for kind in delegation.outside:
            console.print(f"  outside: {kind.count} x {kind.operator} ({kind.reason})", soft_wrap=True)
    if compiled := method.compiled:
        console.print(
            f"  compiled in {compiled.compile_s:.0f} s, library {text.size(compiled.library_bytes)}"
        )
    if method.capture.strict_failure:
        console.print(
            f"  strict capture failed: {method.capture.strict_failure}", soft_wrap=True, markup=False
        )


def _shape(sizes: Sequence[int | str]) -> str:
    return r"\[" + ", ".join(map(str, sizes)) + "]"


def _show_program(path: Path, as_json: bool) -> None:
    from dataclasses import asdict

    from edgeexport.artifact.pte_contents import read_contents

    contents = read_contents(path)
    if as_json:
        methods = [asdict(method) | {"planned_bytes": method.planned_bytes} for method in contents.methods]
        display.print_json(asdict(contents) | {"methods": methods})
        return
    console = display.console()
    _print_file(console, contents)
    for method in contents.methods:
        _print_contents(console, method, (contents.schema or {}).get(method.name))
    _print_constants(console, contents)


def _print_file(console, contents) -> None:
    console.print(
        f"[bold]{contents.file}[/bold]: {text.size(contents.size_bytes)}, read from the file alone",
        soft_wrap=True,
    )
    console.print(
        f"  program {text.size(contents.flatbuffer_bytes)}, its constants"
        f" {text.size(contents.constant_bytes)}, {contents.named} weights of delegates"
        f" {text.size(contents.named_bytes)}, first values of state {text.size(contents.state_bytes)}",
        soft_wrap=True,
    )


def _print_contents(console, method, described: dict | None) -> None:
    """A method, with names, sizes and meanings from the program's own description where there is
    one.
    """
    tensors = display.table(
        f"{method.name} ({method.instructions} instructions)",
        "",
        "name",
        "kind",
        "dtype",
        "sizes",
        "shape",
        "range",
        "meaning",
    )
    for side, key, values in (("in", "inputs", method.inputs), ("out", "outputs", method.outputs)):
        for number, value in enumerate(values):
            about = _described(described, key, number)
            cells = (
                about.get("name", number),
                value.kind,
                value.dtype or "",
                _sizes(value, about),
                value.shape or "",
                _range(about),
                about.get("meaning", ""),
            )
            tensors.add_row(side, *(display.plain(str(cell)) for cell in cells))
    console.print(tensors)
    for backend in method.backends:
        console.print(
            f"  {backend.delegates} delegates of {backend.name}, {text.size(backend.size_bytes)}",
            soft_wrap=True,
            markup=False,
        )
    arenas = ", ".join(f"arena {number}: {text.size(size)}" for number, size in method.arena_bytes.items())
    console.print(f"  planned memory {text.size(method.planned_bytes)}" + (f" ({arenas})" if arenas else ""))
    for name, count in method.operators.items():
        console.print(f"  outside: {count} x {name}", soft_wrap=True, markup=False)


def _described(described, key: str, number: int) -> dict:
    """What a program says of a tensor of its own; anyone may have written it."""
    tensors = described.get(key) if isinstance(described, dict) else None
    about = tensors[number] if isinstance(tensors, list) and number < len(tensors) else None
    return about if isinstance(about, dict) else {}


def _sizes(value, about: dict) -> str:
    """The sizes in the file, a dynamic one with its name and least where the program says them:
    [batch 1..16, 3].
    """
    if value.sizes is None:
        return ""
    shape = about.get("shape")
    domains = shape if isinstance(shape, list) else []
    said = [domain if isinstance(domain, dict) else {} for domain in domains] + [{}] * len(value.sizes)
    return "[" + ", ".join(_size(size, domain) for size, domain in zip(value.sizes, said)) + "]"


def _size(size: int, domain: dict) -> str:
    match domain:
        case {"kind": "range", "range": {"min": least, "max": most}}:
            return f"{domain.get('name', '')} {least}..{most}".strip()
    return str(size)


def _range(about: dict) -> str:
    match about.get("range"):
        case [least, most]:
            return f"{least} to {most} {about.get('unit') or ''}".strip()
    return ""


def _print_constants(console, contents) -> None:
    from edgeexport.artifact.model_schema import METHOD

    for name, values in contents.constants.items():
        if name != METHOD or contents.schema is None:
            console.print(f"constant {name}: {', '.join(map(_cut, values))}", soft_wrap=True, markup=False)
    if contents.schema is None:
        return
    entry = contents.schema.get(METHOD)
    about = entry.get("about") if isinstance(entry, dict) else None
    console.print(
        f"constant {METHOD}: describes {', '.join(name for name in contents.schema if name != METHOD)} (all"
        " of it with --json)",
        soft_wrap=True,
        markup=False,
    )
    for key, value in about.items() if isinstance(about, dict) else ():
        console.print(f"  {key}: {_cut(value)}", soft_wrap=True, markup=False)


def _cut(value) -> str:
    import json

    written = json.dumps(value, ensure_ascii=False)
    return written if len(written) <= SHOWN else f"{written[:SHOWN]}... ({len(written)} characters)"
