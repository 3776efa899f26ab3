"""What each target says of itself: TARGET in its file, read without running it.

Whoever runs or checks an artifact needs this, and nothing of what lowers one.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from edgeexport.errors import UnknownName

FOLDER = Path(__file__).parents[1] / "compiler" / "recipes"


@dataclass(frozen=True)
class Setting:
    """Something that a user may set: an option of `edgeexport build`, and an argument of the
    target's `recipe`. A switch has no `metavar`.
    """

    name: str
    help: str
    metavar: str | None = None


@dataclass(frozen=True)
class Target:
    """A target, as it describes itself.

    `format` is that of its program files (`pte`, `pt2`). `runtimes` are the modules of
    edgeexport.runtime that run these on this machine, the default first; none, where no machine
    like this one can. `checks` are modules of edgeexport.verify.checks, in their order.
    `weight_copies` is how often a loaded program has its weights in memory. `keeps_programs`:
    whether artifacts hold the captured ExportedPrograms too. `describes_itself`: whether programs
    have methods that return a constant. `refuses_values`: whether the runtime answers a value past
    its range with an error, and does not end the process. `serves`: whether a server can run it.
    """

    name: str
    summary: str
    format: str
    precisions: tuple[str, ...]
    runtimes: tuple[str, ...]
    checks: tuple[str, ...]
    settings: tuple[Setting, ...]
    weight_copies: float
    keeps_programs: bool
    describes_itself: bool
    refuses_values: bool
    serves: bool


def is_pte(target: Target) -> bool:
    """Whether its programs are `.pte` files."""
    return target.format == "pte"


@cache
def targets() -> dict[str, Target]:
    """Every target by name."""
    return {path.stem: _target(path) for path in sorted(FOLDER.glob("[a-z]*.py"))}


def target(name: str) -> Target:
    """A target by name. Raises UnknownName."""
    if name not in targets():
        raise UnknownName("target", name, targets())
    return targets()[name]


def _target(path: Path) -> Target:
    facts = literal(path, "TARGET")
    settings = tuple(Setting(**setting) for setting in facts.pop("settings"))
    return Target(name=path.stem, settings=settings, **facts)


def literal(path: Path, name: str) -> Any:
    """The literal that a file assigns to `name` at its top level; the file is parsed, not run."""
    for statement in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(statement, ast.Assign) and any(
            getattr(t, "id", None) == name for t in statement.targets
        ):
            return ast.literal_eval(statement.value)
    raise AssertionError(f"{path.name} defines no {name}")
