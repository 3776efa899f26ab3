"""Finds models and recipes by name, without importing them until one is asked for."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import inspect
import sys
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from edgeexport.errors import UnknownName, UsageError
from edgeexport.method import Model

if TYPE_CHECKING:
    from edgeexport.compiler.edge_lowering import EdgeRecipe
    from edgeexport.compiler.server_compilation import ServerRecipe

    Recipe = EdgeRecipe | ServerRecipe

_PACKAGE = Path(__file__).parent


@cache
def variants() -> dict[str, dict[str, Any]]:
    """Every model by its full name: file, summary, aliases.

    Read from the literal VARIANTS of each file in models/.
    """
    found = {}
    for path in sorted((_PACKAGE / "models").glob("[a-z]*.py")):
        for name, facts in _literal(path, "VARIANTS").items():
            found[name] = {"aliases": (), **facts, "file": path.stem}
    return found


def require(model: str, targets: Iterable[str], precision: str) -> None:
    """Raise UnknownName for a name that nothing has: a mistyped word needs no PyTorch to be
    refused. A user's own model is looked for by `model`.
    """
    if ":" not in model:
        _full_name(model)
    for target in targets:
        _require_target(target, precision)


def model(name: str) -> Model:
    """A model by name or alias, or a user's own as `package.module:OBJECT` or
    `path/file.py:OBJECT`.

    OBJECT is a Model or a function that returns one. Raises UnknownName, or UsageError for a user's
    object that cannot be had.
    """
    if ":" in name:
        return _users_own(name)
    full = _full_name(name)
    module = importlib.import_module(f"edgeexport.models.{variants()[full]['file']}")
    return module.model(full)


def targets() -> dict[str, dict[str, Any]]:
    """Every target by name: its summary and precisions."""
    paths = sorted((_PACKAGE / "compiler" / "recipes").glob("[a-z]*.py"))
    return {
        p.stem: {"summary": _literal(p, "SUMMARY"), "precisions": _literal(p, "PRECISIONS")} for p in paths
    }


def recipe(target: str, precision: str, settings: Mapping[str, str | bool] = MappingProxyType({})) -> Recipe:
    """The recipe of a target at a precision, with those of `settings` that it takes.

    Raises UnknownName, UsageError.
    """
    _require_target(target, precision)
    make = importlib.import_module(f"edgeexport.compiler.recipes.{target}").recipe
    taken = inspect.signature(make).parameters
    return make(precision, **{name: value for name, value in settings.items() if name in taken})


def _full_name(name: str) -> str:
    names = {alias: full for full, facts in variants().items() for alias in (full, *facts["aliases"])}
    if name not in names:
        raise UnknownName("model", name, names)
    return names[name]


def _require_target(target: str, precision: str) -> None:
    known = targets()
    if target not in known:
        raise UnknownName("target", target, known)
    if precision not in known[target]["precisions"]:
        raise UnknownName(f"precision of {target}", precision, known[target]["precisions"])


def _literal(path: Path, name: str) -> Any:
    """The literal that a file assigns to `name` at its top level; the file is parsed, not run."""
    for statement in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(statement, ast.Assign) and any(
            getattr(t, "id", None) == name for t in statement.targets
        ):
            return ast.literal_eval(statement.value)
    raise AssertionError(f"{path.name} defines no {name}")


def _users_own(name: str) -> Model:
    place, _, attribute = name.rpartition(":")
    try:
        found = getattr(_module(place), attribute)
    except (ImportError, FileNotFoundError) as error:
        raise UsageError(f"'{name}': {place} cannot be imported ({error}).") from error
    except AttributeError as error:
        raise UsageError(f"'{name}': {place} has no '{attribute}'.") from error
    found = found() if callable(found) and not isinstance(found, Model) else found
    if not isinstance(found, Model):
        raise UsageError(
            f"'{name}' is a {type(found).__name__}; an edgeexport.Model, or a function that returns one, is"
            " needed."
        )
    return found


def _module(place: str):
    if not place.endswith(".py"):
        return importlib.import_module(place)
    path = Path(place)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module
