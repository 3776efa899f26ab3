"""The typed API of a package: every method as a function, with names and types of the platform's
language.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from edgeexport.artifact.signatures import Argument, Call, Result, identifier, type_name, with_own_state


@dataclass(frozen=True)
class Parameter:
    """A tensor that a function takes, by its name in the language.

    `answer` is where it comes from: the function and the property of what that returns.
    """

    name: str
    argument: Argument
    answer: tuple[str, str] | None


@dataclass(frozen=True)
class Property:
    """A tensor that a function returns, by its name in the language."""

    name: str
    result: Result


@dataclass(frozen=True)
class Function:
    """A method as a function of the language, which returns an `outputs` with these properties."""

    name: str
    outputs: str
    call: Call
    parameters: tuple[Parameter, ...]
    properties: tuple[Property, ...]

    @property
    def own(self) -> tuple[Parameter, ...]:
        """What the app itself gives."""
        return tuple(p for p in self.parameters if p.answer is None)

    @property
    def answers(self) -> tuple[str, ...]:
        """The functions whose answers it takes, in order."""
        return tuple(dict.fromkeys(p.answer[0] for p in self.parameters if p.answer))


@dataclass(frozen=True)
class Api:
    """The functions of a package's class, and the methods that have none: those whose state the
    platform's Module keeps from the method it is for.
    """

    name: str
    functions: tuple[Function, ...]
    left_out: tuple[str, ...]

    def outputs_of(self, function: str) -> str:
        """The class that a function returns."""
        return next(f.outputs for f in self.functions if f.name == function)


def api_of(
    model: str,
    calls: Sequence[Call],
    language: str,
    members: Collection[str] = (),
    types: Collection[str] = (),
    *,
    shared_state: bool = False,
) -> Api:
    """The API of a model's calls.

    `members` and `types` are names that the code around it has, and which none of its may be.

    `shared_state` says that the platform's methods see each other's state, so that none is left
    out.
    """
    offered = tuple(calls) if shared_state else with_own_state(calls)
    functions: list[Function] = []
    for call in offered:
        taken = {*members, *(f.name for f in functions)}
        functions.append(
            _function(call, identifier(call.method, language, taken), functions, language, members)
        )
    name = type_name(model, {*types, *(f.outputs for f in functions)})
    return Api(name, tuple(functions), tuple(call.method for call in calls if call not in offered))


def _function(
    call: Call, name: str, earlier: Sequence[Function], language: str, members: Collection[str]
) -> Function:
    homes: dict[tuple[str, str] | None, tuple[str, str]] = {
        (f.call.method, p.result.name): (f.name, p.name) for f in earlier for p in f.properties
    }
    outputs = type_name(f"{call.method}_outputs", {f.outputs for f in earlier})
    functions = {f.name for f in earlier}
    names = _names([a.name for a in call.arguments], language, {*members, *functions, name})
    parameters = tuple(
        Parameter(each, argument, homes.get(argument.source)) for each, argument in zip(names, call.arguments)
    )
    properties = tuple(
        Property(each, result)
        for each, result in zip(_names([r.name for r in call.results], language, members), call.results)
    )
    return Function(name, outputs, call, parameters, properties)


def _names(names: Sequence[str], language: str, taken: Collection[str]) -> list[str]:
    """Each in the language's style, and no two the same."""
    made: list[str] = []
    for name in names:
        made.append(identifier(name, language, {*taken, *made}))
    return made
