"""What the page's template is filled with: each artifact's sections, and artifacts of a model side
by side.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from edgeexport import text
from edgeexport.artifact.folder import Artifact
from edgeexport.artifact.manifest import Manifest
from edgeexport.artifact.pte_memory_plan import read_memory_plans
from edgeexport.artifact.targets import is_pte
from edgeexport.verify.compare import FLOOR
from edgeexport.verify.report import GENERATOR, Measured, Subject, findings_of
from edgeexport.verify.report.app_code import app_code
from edgeexport.verify.report.latency import Race, races, ratio, ratios
from edgeexport.verify.report.memory import PlanView, plan_view
from edgeexport.verify.report.method_graph import MethodGraph, method_graph
from edgeexport.verify.report.numerics import MethodNumerics, numerics, worst_of_limit
from edgeexport.verify.report.profile import MethodProfile, method_profiles


@dataclass(frozen=True)
class Entry:
    """One artifact's sections."""

    subject: Subject
    anchor: str
    failed: int
    numerics: tuple[tuple[str, list[MethodNumerics]], ...]
    profiles: tuple[tuple[str, list[MethodProfile]], ...]
    plans: tuple[PlanView, ...]
    graph: MethodGraph
    code: dict[str, str]

    @property
    def artifact(self) -> Artifact:
        return self.subject.artifact

    @property
    def manifest(self) -> Manifest:
        return self.subject.artifact.manifest


@dataclass(frozen=True)
class Line:
    """One artifact in the comparison."""

    entry: Entry
    size_bytes: int
    planned_bytes: int | None
    worst: tuple[float, float] | None
    delegates: int | None
    boards: tuple[tuple[str, bool], ...]


@dataclass(frozen=True)
class Group:
    """The artifacts of one model, side by side, with the latency files about them."""

    model: str
    summary: str
    lines: tuple[Line, ...]
    benches: tuple[tuple[Measured, list[Race]], ...]
    ratios: tuple[tuple[str, dict[str, str]], ...]
    """What was timed with its baseline, and the ratio by target and precision."""


def render(subjects: Sequence[Subject]) -> str:
    """The page as HTML."""
    import jinja2

    def environment(escape: bool) -> jinja2.Environment:
        loader = jinja2.PackageLoader("edgeexport.verify.report", ".")
        return jinja2.Environment(
            loader=loader,
            autoescape=escape,
            trim_blocks=True,
            lstrip_blocks=True,
            undefined=jinja2.StrictUndefined,
        )

    code = environment(escape=False)
    entries = [_entry(subject, f"artifact-{number}", code) for number, subject in enumerate(subjects, 1)]
    groups = [
        _group(model, [e for e in entries if e.manifest.model.name == model])
        for model in dict.fromkeys(e.manifest.model.name for e in entries)
    ]
    return (
        environment(escape=True)
        .get_template("page.html.j2")
        .render(
            groups=groups,
            single=len(entries) == 1,
            total=len(entries),
            failed=sum(e.failed for e in entries),
            text=text,
            ratio=ratio,
            floor=FLOOR,
            generator=GENERATOR,
        )
    )


def _entry(subject: Subject, anchor: str, code) -> Entry:
    artifact = subject.artifact
    manifest = artifact.manifest
    sources = [("build", manifest.findings), *((check.name, findings_of(check)) for check in subject.checks)]
    found = (
        (name, numerics(manifest, findings))
        for name, findings in sources
        if any(f.check == "numerics" for f in findings)
    )
    plans = read_memory_plans(artifact.program_path) if is_pte(artifact.target) else ()
    return Entry(
        subject,
        anchor,
        sum(not f.passed for f in subject.findings),
        tuple(found),
        tuple((p.name, method_profiles(p.content)) for p in subject.profiles),
        tuple(plan_view(plan) for plan in _in_order(plans, list(artifact.methods))),
        method_graph(manifest),
        app_code(artifact, code),
    )


def _in_order(plans: Iterable, names: list[str]) -> list:
    return sorted(plans, key=lambda plan: names.index(plan.method))


def _group(model: str, entries: Sequence[Entry]) -> Group:
    benches = {bench.name: bench for entry in entries for bench in entry.subject.benches}
    lines = tuple(_line(entry) for entry in entries)
    drawn = tuple((bench, races(bench.content)) for bench in benches.values())
    return Group(
        model,
        entries[0].manifest.model.summary,
        lines,
        drawn,
        tuple(line for bench in benches.values() for line in ratios(bench.content)),
    )


def _line(entry: Entry) -> Line:
    manifest = entry.manifest
    planned = [m.planned_memory_bytes for m in manifest.methods if m.planned_memory_bytes is not None]
    delegations = [m.delegation for m in manifest.methods if m.delegation is not None]
    return Line(
        entry,
        manifest.program_file.size_bytes,
        max(planned, default=None),
        worst_of_limit(manifest),
        sum(d.delegates for d in delegations) if delegations else None,
        tuple(_boards(entry.subject)),
    )


def _boards(subject: Subject) -> Iterator[tuple[str, bool]]:
    """The boards that later checks were held against, and whether the program fits each."""
    for check in subject.checks:
        found = [f for f in findings_of(check) if f.check == "board"]
        name = next((f.details["board"] for f in found if "board" in f.details), None)
        if name is not None:
            yield name, all(f.passed for f in found)
