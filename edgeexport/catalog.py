"""Finds models and recipes by name, without importing them until one is asked for."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from edgeexport import pipelines
from edgeexport.artifact import targets
from edgeexport.artifact.targets import literal
from edgeexport.errors import UnknownName, UsageError
from edgeexport.method import Model, Pipeline

if TYPE_CHECKING:
    from edgeexport.compiler.edge_lowering import EdgeRecipe
    from edgeexport.compiler.precision import Precision
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
        for name, facts in literal(path, "VARIANTS").items():
            found[name] = {"aliases": (), **facts, "file": path.stem}
    return found


def require(model: str, wanted: Iterable[str], precision: str) -> None:
    """Raise UnknownName for a name that nothing has: a mistyped word needs no PyTorch to be
    refused. A user's own model is looked for by `model`.
    """
    if ":" not in model:
        _full_name(model)
    for target in wanted:
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


def recipe(target: str, precision: str, settings: Mapping[str, str | bool] = MappingProxyType({})) -> Recipe:
    """The recipe of a target at a precision, with those of `settings` that it takes.

    Raises UnknownName, UsageError.
    """
    _require_target(target, precision)
    make = importlib.import_module(f"edgeexport.compiler.recipes.{target}").recipe
    taken = {setting.name for setting in targets.target(target).settings}
    return make(precision, **{name: value for name, value in settings.items() if name in taken})


def precision(name: str, of: Model) -> Precision:
    """A precision by name, as it is for a model: by the rules of the model's file, or else one kind
    for all layers that it fits. Raises UnknownName.
    """
    from edgeexport.compiler.precision import precision as ruled

    return ruled(name, of)


def _full_name(name: str) -> str:
    names = {alias: full for full, facts in variants().items() for alias in (full, *facts["aliases"])}
    if name not in names:
        raise UnknownName("model", name, names)
    return names[name]


def _require_target(target: str, precision: str) -> None:
    known = targets.target(target).precisions
    if precision not in known:
        raise UnknownName(f"precision of {target}", precision, known)


def original(asked: str, named: str | None) -> Model:
    """The model that an artifact was built from: one of the catalogue, or the one that the user
    `named`.

    What a manifest says the user asked for is data: code of the user's own is never found through
    it. Raises UsageError.
    """
    if named is None and ":" in asked:
        raise UsageError(
            f"This artifact was built from code of its own ({asked}), which nothing but you may name: give"
            f" --model {asked} if you trust that code."
        )
    return model(named or asked)


def pipeline(name: str) -> Pipeline:
    """A pipeline by name, or a user's own as `package.module:OBJECT` or `path/file.py:OBJECT`.

    Raises UnknownName, UsageError.
    """
    if ":" not in name:
        return pipelines.pipeline(name)
    found = _users_object(name)
    if not isinstance(found, Pipeline):
        raise UsageError(f"'{name}' is a {type(found).__name__}; an edgeexport.method.Pipeline is needed.")
    return found


def _users_own(name: str) -> Model:
    found = _users_object(name)
    found = found() if callable(found) and not isinstance(found, Model) else found
    if not isinstance(found, Model):
        raise UsageError(
            f"'{name}' is a {type(found).__name__}; an edgeexport.Model, or a function that returns one, is"
            " needed."
        )
    return found


def _users_object(name: str) -> Any:
    place, _, attribute = name.rpartition(":")
    try:
        return getattr(_module(place), attribute)
    except (ImportError, FileNotFoundError) as error:
        raise UsageError(f"'{name}': {place} cannot be imported ({error}).") from error
    except AttributeError as error:
        raise UsageError(f"'{name}': {place} has no '{attribute}'.") from error


def _module(place: str):
    if not place.endswith(".py"):
        return importlib.import_module(place)
    path = Path(place)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{place} is no Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module
