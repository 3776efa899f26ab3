"""What a build is asked for, held against what there is, before any work."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from edgeexport import catalog
from edgeexport.artifact.targets import Target, target
from edgeexport.errors import UsageError
from edgeexport.method import Dim, Model, Tolerance, Weights
from edgeexport.runtime import boards

if TYPE_CHECKING:
    from edgeexport.catalog import Recipe
    from edgeexport.compiler.precision import Precision
    from edgeexport.runtime.boards import Board


@dataclass(frozen=True)
class Request:
    """A build: `asked` is what the user typed for the model, `recipes` are one a target."""

    asked: str
    model: Model
    recipes: tuple[Recipe, ...]
    precision: Precision
    calibration: str
    weights: Weights
    dims: Mapping[str, Dim]
    tolerance: Tolerance
    board: str | None

    @property
    def targets(self) -> tuple[Target, ...]:
        """The target of each recipe."""
        return tuple(target(recipe.name) for recipe in self.recipes)

    def folders(self) -> list[Path]:
        """Where the artifacts go unless the user says: in a folder as the user typed the model,
        unless that is a path.
        """
        name = self.model.name if ":" in self.asked else self.asked
        return [Path("build") / name / f"{each.name}-{self.precision.name}" for each in self.targets]


def request(
    model: str,
    *,
    targets: Sequence[str],
    precision: str,
    calibration: str,
    weights: str,
    batch: str | None,
    board: str | None,
    skip_passes: Sequence[str],
    settings: Mapping[str, str | bool | None],
) -> Request:
    """What was asked for. Raises UsageError and its kin for what cannot be."""
    device = None if board is None else boards.board(board)
    recipes = _recipes(targets, precision, settings, device)
    loaded_from = Weights.parse(weights)
    found = catalog.model(model)
    numbers = catalog.precision(precision, found)
    kinds = {rule.kind for rule in numbers.rules}
    recipes = _without(recipes, [name for name in skip_passes if name not in kinds])
    numbers = replace(numbers, rules=tuple(r for r in numbers.rules if r.kind not in skip_passes))
    _require_calibration(calibration, numbers, found)
    return Request(
        asked=model,
        model=found,
        recipes=recipes,
        precision=numbers,
        calibration=calibration,
        weights=loaded_from,
        dims=_dims(found, batch),
        tolerance=numbers.tolerance or _tolerance(found, precision),
        board=board,
    )


def _require_calibration(source: str, precision: Precision, found: Model) -> None:
    """Raise UsageError for data that is not there, or that nothing would be calibrated with."""
    if source == "samples":
        return
    if not precision.calibrates:
        raise UsageError(
            f"--calibration {source}: {precision.name} of {found.name} has no static ranges to find; that is"
            " for static_int8."
        )
    if source != "noise" and not Path(source).is_dir():
        raise UsageError(f"--calibration {source}: there is no such folder. Give one, or samples, or noise.")


def _recipes(
    targets: Sequence[str], precision: str, settings: Mapping[str, str | bool | None], board: Board | None
) -> list[Recipe]:
    """The recipe of each target, with those settings that are given, or else the board's.

    Raises UsageError for what this machine, target or board cannot do.
    """
    if len(set(targets)) < len(targets):
        raise UsageError(f"A target is given twice: {', '.join(targets)}.")
    for name in targets:
        if board is not None and name not in board.targets:
            raise UsageError(
                f"The board {board.name} does not run {name}; it runs {', '.join(board.targets)}."
            )
    given = {name: value for name, value in settings.items() if value not in (None, False)}
    defaults = {"cpu_isa": board.cpu_isa} if board is not None and board.cpu_isa else {}
    recipes = [catalog.recipe(name, precision, defaults | given) for name in targets]
    unknown = given.keys() - {setting.name for name in targets for setting in target(name).settings}
    if unknown:
        raise UsageError(
            f"{', '.join(targets)} has no setting"
            f" {', '.join('--' + name.replace('_', '-') for name in sorted(unknown))}."
        )
    for recipe in recipes:
        recipe.require()
    return recipes


def _without(recipes: Sequence[Recipe], names: Sequence[str]) -> tuple[Recipe, ...]:
    """The recipes without the passes of these names."""
    known = dict.fromkeys(p.__name__ for recipe in recipes for p in recipe.passes)
    for name in names:
        if name not in known:
            raise UsageError(f"This recipe has no pass '{name}' to skip. It has: {', '.join(known)}.")
    return tuple(
        replace(recipe, passes=tuple(p for p in recipe.passes if p.__name__ not in names))
        for recipe in recipes
    )


def _dims(found: Model, batch: str | None) -> dict[str, Dim]:
    dims = {d.name: d for d in found.dims}
    if batch is not None:
        if "batch" not in dims:
            raise UsageError(f"{found.name} has no batch dimension; it has: {', '.join(dims) or 'none'}.")
        dims["batch"] = Dim.parse("batch", batch)
    return dims


def _tolerance(found: Model, precision: str) -> Tolerance:
    if precision not in found.tolerances:
        raise UsageError(
            f"{found.name} declares no tolerance for {precision}; it has: {', '.join(found.tolerances)}."
        )
    return found.tolerances[precision]
