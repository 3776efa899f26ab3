"""Where the parts of a package come from, and under what licences."""

from __future__ import annotations

from pathlib import PurePath

from edgeexport.mobile import Request
from edgeexport.mobile.templates import environment


def notice(request: Request, runtime: str) -> str:
    """The text of NOTICE; `runtime` is what the platform calls ExecuTorch."""
    manifest = request.manifest
    weights = manifest["weights"]
    # Of a checkpoint only the name: its folder is of the machine that it was built on.
    origin = PurePath(weights["path"]).name if weights["path"] else weights["origin"]
    return environment().get_template("NOTICE.j2").render(
        model=manifest["model"], weights=weights, origin=origin, program=manifest["program"], program_sha256=request.program_sha256,
        versions=manifest["versions"], runtime=runtime, runtime_version=request.runtime_version, notes=request.notes,
    )  # fmt: skip
