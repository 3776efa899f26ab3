"""`edgeexport show`."""

from __future__ import annotations

from pathlib import Path

import click

from edgeexport.cli import display


@click.command(name="show")
@click.argument("artifact", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print the manifest as JSON.")
def command(artifact: Path, as_json: bool) -> None:
    """Show ARTIFACT, or each of an archive: methods, inputs and outputs, sizes, versions, findings.

    \b
    Example:
      edgeexport show build/sam2/xnnpack-fp32
    """
    from edgeexport.artifact import open_artifacts

    manifests = [opened.manifest for opened in open_artifacts(artifact)]
    if as_json:
        display.print_json(manifests if len(manifests) > 1 else manifests[0])
        return
    console = display.console()
    for manifest in manifests:
        _print_head(console, manifest)
        for method in manifest["methods"]:
            _print_method(console, method)
        console.print(display.findings_table(manifest["findings"]))


def _print_head(console, manifest: dict) -> None:
    weights, model, timings = manifest["weights"], manifest["model"], manifest["timings"]
    console.print(f"[bold]{model['name']}[/bold]: {model['summary']}")
    console.print(f"  target {manifest['target']}, {manifest['precision']}, built {manifest['created']} in {timings['wall_s']:.0f} s")
    console.print(f"  source {model['source']['repository']} ({model['source']['licence']})", soft_wrap=True)
    console.print(f"  weights {weights['origin']}, {weights['size_bytes'] / 1e6:.1f} MB, sha256 {weights['sha256'][:16]}...", soft_wrap=True)
    for name, file in manifest["files"].items():
        console.print(f"  file {name}: {file['size_bytes'] / 1e6:.1f} MB, sha256 {file['sha256'][:16]}...")
    console.print("  versions " + ", ".join(f"{k} {v}" for k, v in manifest["versions"].items()), soft_wrap=True)


def _print_method(console, method: dict) -> None:
    dims = {d["name"]: d for d in method["dims"]}
    tensors = display.table(f"{method['name']} (captured {method['capture']['mode']})", "", "name", "dtype", "shape", "range", "layout", "meaning")
    for spec in method["inputs"]:
        bounds = " to ".join(f"{v:g}" for v in spec["range"]) if spec["range"] else ""
        tensors.add_row("in", spec["name"], spec["dtype"], _shape(spec["shape"]), f"{bounds} {spec['unit'] or ''}".strip(), spec["layout"], spec["meaning"])
    for spec in method["outputs"]:
        tensors.add_row("out", spec["name"], spec["dtype"], _shape(spec["shape_at_least"]), "", "contiguous", spec["meaning"])
    console.print(tensors)
    for name, dim in dims.items():
        verified = "not verified" if dim["verified"] is None else "verified {} to {}".format(*dim["verified"])
        console.print(f"  {name}: asked {dim['asked'][0]} to {dim['asked'][1]}, {verified} at {', '.join(map(str, dim['sizes']))}")
    if delegation := method["delegation"]:
        console.print(f"  {delegation['delegates']} delegates with {delegation['delegated_nodes']} nodes; planned memory {(method['planned_memory_bytes'] or 0) / 1e6:.1f} MB")
        for kind in delegation["outside"]:
            console.print(f"  outside: {kind['count']} x {kind['operator']} ({kind['reason']})", soft_wrap=True)
    if compiled := method["compiled"]:
        console.print(f"  compiled in {compiled['compile_s']:.0f} s, library {compiled['library_bytes'] / 1e6:.1f} MB")
    if method["capture"]["strict_failure"]:
        console.print(f"  strict capture failed: {method['capture']['strict_failure']}", soft_wrap=True, markup=False)


def _shape(sizes: list) -> str:
    return r"\[" + ", ".join(map(str, sizes)) + "]"
