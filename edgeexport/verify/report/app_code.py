"""How an app calls an artifact: short code in its language, with the artifact's own file, methods,
shapes and dtypes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from edgeexport.artifact.folder import Artifact
from edgeexport.artifact.signatures import TYPES, Argument, Call, Result, calls_of, camel, with_own_state

LANGUAGES = {
    "pte": {"Kotlin": "kotlin", "Swift": "swift", "C++": "cpp", "Python": "python"},
    "pt2": {"Python": "python", "C++": "cpp_package"},
}
"""Templates in `code/` by the language's name, for each kind of program."""

TAKEN = {
    "module",
    "program",
    "main",
    "torch",
    "edgeexport",
    "in",
    "val",
    "var",
    "let",
    "fun",
    "func",
    "class",
    "def",
    "return",
    "int",
    "float",
    "long",
    "bool",
    "auto",
}
"""Names that the code itself, or a language, has."""


@dataclass(frozen=True)
class Given:
    """An argument as the code has it: in a variable of its own, or `source`, the variable and place
    of the answer that it is.
    """

    argument: Argument
    var: str
    source: tuple[str, int] | None


@dataclass(frozen=True)
class Got:
    """A result as the code has it."""

    result: Result
    var: str
    index: int


@dataclass(frozen=True)
class Step:
    """One call, its answer in `var`."""

    call: Call
    var: str
    arguments: tuple[Given, ...]
    results: tuple[Got, ...]


def app_code(artifact: Artifact, environment) -> dict[str, str]:
    """The code by language; `environment` is Jinja's, without escaping."""
    calls = calls_of(artifact)
    kept = {call.method for call in with_own_state(calls)}
    steps = _steps(calls)
    facts = {
        "file": artifact.manifest.program,
        "folder": artifact.name,
        "steps": steps,
        "types": TYPES,
        "camel": camel,
        "results": {(step.var, got.index): got.var for step in steps for got in step.results},
        "stateful": [call.method for call in calls if call.state],
        "dropped": [call.method for call in calls if call.method not in kept],
        "buffers": list({s.name: s for call in calls for s in call.state}.values()),
    }
    languages = LANGUAGES[artifact.target.format]
    return {
        language: environment.get_template(f"code/{name}.j2").render(facts).strip() + "\n"
        for language, name in languages.items()
    }


def _steps(calls: tuple[Call, ...]) -> list[Step]:
    """The calls in order, with variables that no other has."""
    homes: dict[tuple[str, str], tuple[str, int]] = {}
    taken = set(TAKEN)
    steps = []
    for call in calls:
        var = _free(f"{_identifier(call.method)}_out", call.method, taken)
        arguments = tuple(_given(call, argument, homes, taken) for argument in call.arguments)
        results = tuple(
            Got(result, _free(_identifier(result.name), call.method, taken), index)
            for index, result in enumerate(call.results)
        )
        homes |= {(call.method, got.result.name): (var, got.index) for got in results}
        steps.append(Step(call, var, arguments, results))
    return steps


def _given(call: Call, argument: Argument, homes: Mapping, taken: set[str]) -> Given:
    source = homes.get(argument.source)
    return Given(
        argument, _free(_identifier(argument.name), call.method, taken) if source is None else "", source
    )


def _identifier(name: str) -> str:
    return re.sub(r"\W", "_", name)


def _free(name: str, method: str, taken: set[str]) -> str:
    """`name`, or with its method before it where another has it already."""
    while name in taken:
        name = f"{_identifier(method)}_{name}"
    taken.add(name)
    return name
