"""Where the parts of a package or a delivery come from, and under what licences."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePath

from edgeexport.artifact.manifest import Manifest
from edgeexport.ship.mobile.templates import environment


def notice(manifest: Manifest, runtime: str, notes: Sequence[str] = ()) -> str:
    """The text of NOTICE for an artifact's program; `runtime` is what the platform calls
    ExecuTorch, with its version.
    """
    weights = manifest.weights
    # Of a checkpoint only the name: its folder is of the machine that it was built on.
    origin = PurePath(weights.path).name if weights.path else weights.origin
    return (
        environment()
        .get_template("NOTICE.j2")
        .render(
            model=manifest.model,
            weights=weights,
            origin=origin,
            program=manifest.program,
            program_sha256=manifest.program_file.sha256,
            versions=manifest.versions,
            runtime=runtime,
            notes=notes,
        )
    )
