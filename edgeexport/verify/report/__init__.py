"""Artifacts, and what was measured of them, as one self-contained HTML page: no network, no
script.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from edgeexport.artifact import validated_json
from edgeexport.artifact.folder import Artifact, open_artifacts
from edgeexport.artifact.manifest import from_json
from edgeexport.errors import ArtifactError, UsageError, foreign_errors
from edgeexport.method import Finding

DEFAULT_NAME = "report.html"
GENERATOR = '<meta name="generator" content="edgeexport report">'
"""What a page of ours has; --force replaces no other file."""


@dataclass(frozen=True)
class Measured:
    """A file of measurements: its name for messages and the page, and its content."""

    name: str
    content: dict


@dataclass(frozen=True)
class SourcedFinding(Finding):
    """A finding, and the file that it is in; one of the build is in the manifest."""

    source: str = "build"


@dataclass(frozen=True)
class Subject:
    """An artifact with the files that are about it: latency, profiles, and findings of later
    checks.
    """

    artifact: Artifact
    benches: tuple[Measured, ...]
    profiles: tuple[Measured, ...]
    checks: tuple[Measured, ...]

    @property
    def findings(self) -> list[SourcedFinding]:
        """Of the build and of later checks, the failed ones first."""
        found = [SourcedFinding(**vars(finding)) for finding in self.artifact.manifest.findings]
        found += [
            SourcedFinding(**vars(finding), source=check.name)
            for check in self.checks
            for finding in findings_of(check)
        ]
        return sorted(found, key=lambda finding: finding.passed)


def findings_of(check: Measured) -> list[Finding]:
    """The findings in a file of them."""
    return [from_json(Finding, finding) for finding in check.content["findings"]]


def report(
    paths: Sequence[str | Path],
    benches: Sequence[str | Path] = (),
    profiles: Sequence[str | Path] = (),
    findings: Sequence[str | Path] = (),
    out: str | Path | None = None,
    force: bool = False,
) -> Path:
    """Write the page about the artifacts at `paths` (folders, or archives) and return its path;
    `out` is by default beside the first.

    Raises UsageError for a file that is malformed, or of other weights or another program than any
    artifact here; ArtifactError for what is no artifact, or may not be written.
    """
    if not paths:
        raise UsageError("Give at least one artifact.")
    out = Path(out) if out is not None else Path(paths[0]).parent / DEFAULT_NAME
    refuse(out, force)
    read = {
        kind: [Measured(str(p), validated_json.read(p, kind)) for p in files]
        for kind, files in (("bench", benches), ("profile", profiles), ("findings", findings))
    }
    artifacts = [artifact for path in paths for artifact in open_artifacts(path)]
    subjects = _matched(artifacts, read["bench"], read["profile"], read["findings"])
    from edgeexport.verify.report.page import (
        render,
    )  # with it come torch and executorch, which nothing before needs

    _write(out, render(subjects))
    return out


def refuse(out: Path, force: bool) -> None:
    """Raise ArtifactError before any work when `out` may not be written."""
    if not out.exists() and not out.is_symlink():
        return
    if not force:
        raise ArtifactError(f"{out} exists already. Give --force to replace it, or choose another --out.")
    if not out.is_file() or GENERATOR.encode() not in out.read_bytes()[:2000]:
        raise ArtifactError(
            f"{out} is not a page of `edgeexport report`, so --force does not replace it. Choose another"
            " --out."
        )


def _matched(
    artifacts: list[Artifact], benches: list[Measured], profiles: list[Measured], checks: list[Measured]
) -> list[Subject]:
    """Each artifact with its files. Raises UsageError for a file that is about none of them."""
    for bench in benches:
        _one_of(
            artifacts,
            _has_weights,
            bench.content,
            f"{bench.name} measured {bench.content['model']} with weights"
            f" {bench.content['weights_sha256'][:12]}...",
        )
    for profile in profiles:
        _one_of(
            artifacts,
            _has_program,
            profile.content,
            f"{profile.name} profiled a program {profile.content['program_sha256'][:12]}... of"
            f" {profile.content['model']}",
        )
    for check in checks:
        for finding in check.content["findings"]:
            _one_of(
                artifacts,
                _was_checked,
                finding,
                f"{check.name} checked {finding['artifact']} (program"
                f" {finding.get('program_sha256', 'not named')[:12]})",
            )
    return [
        Subject(
            artifact,
            tuple(file for file in benches if _has_weights(artifact, file.content)),
            tuple(file for file in profiles if _has_program(artifact, file.content)),
            tuple(filter(None, (_part_about(artifact, file) for file in checks))),
        )
        for artifact in artifacts
    ]


def _part_about(artifact: Artifact, check: Measured) -> Measured | None:
    """The findings of a check that are about an artifact, if there are any."""
    found = [f for f in check.content["findings"] if _was_checked(artifact, f)]
    return Measured(check.name, {"findings": found}) if found else None


def _one_of(
    artifacts: list[Artifact], fits: Callable[[Artifact, dict], bool], content: dict, said: str
) -> None:
    if not any(fits(artifact, content) for artifact in artifacts):
        raise UsageError(
            f"{said}: no artifact here is that. They are: {', '.join(_described(a) for a in artifacts)}."
        )


def _described(artifact: Artifact) -> str:
    return (
        f"{artifact.name} ({artifact.manifest.model.name} {artifact.side}, weights"
        f" {artifact.manifest.weights.sha256[:12]}..., program {program_sha256(artifact)[:12]}...)"
    )


def program_sha256(artifact: Artifact) -> str:
    """The hash of its program file."""
    return artifact.manifest.program_file.sha256


def _has_weights(artifact: Artifact, bench: dict) -> bool:
    return (artifact.manifest.model.name, artifact.manifest.weights.sha256) == (
        bench["model"],
        bench["weights_sha256"],
    )


def _has_program(artifact: Artifact, profile: dict) -> bool:
    return program_sha256(artifact) == profile["program_sha256"]


def _was_checked(artifact: Artifact, finding: dict) -> bool:
    """By the program's hash; by target and precision where a file has none."""
    return (
        finding.get("program_sha256", program_sha256(artifact)) == program_sha256(artifact)
        and finding["artifact"] == artifact.side
    )


def _write(out: Path, page: str) -> None:
    with foreign_errors(str(out)):
        out.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{out.name}.partial-", dir=out.parent) as folder:
            partial = Path(folder) / out.name
            partial.write_text(page, encoding="utf-8")
            partial.replace(out)
