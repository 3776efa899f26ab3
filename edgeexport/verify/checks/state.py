"""Does the state of a program hold while other methods run, and does a new sequence start clean?"""

from __future__ import annotations

from collections.abc import Iterator

from edgeexport.artifact.cases import GoldenAnswers, case_calls
from edgeexport.method import Finding
from edgeexport.runtime.program import Program


def check(program: Program) -> Iterator[Finding]:
    """One finding for each method whose cases start from a state that another call sets up.

    The case in the middle is run three times: straight; with every method that shares nothing with
    it called between setup and call (planned into the same memory, a scratch buffer of one would
    overwrite the state); and once more after the greatest case has filled the state. All three
    answers must have the same bits.
    """
    import torch

    if program.emulated:
        return
    golden = GoldenAnswers(program.artifact.golden())
    for name in program.methods:
        cases = program.artifact.methods[name].cases
        chosen = cases[len(cases) // 2]
        if not chosen.setup:
            continue
        setup, method = program[chosen.setup.method], program[name]
        before, inputs = case_calls(chosen, program, method, golden)
        fullest, last = case_calls(cases[-1], program, method, golden)

        def answer(between=lambda: None, setup=setup, method=method, before=before, inputs=inputs):
            setup(*before)
            between()
            return method(*inputs)

        straight = answer()
        others = [other for other, facts in program.artifact.methods.items() if not facts.state]
        disturbed = answer(lambda: [program[other](*_first(program, other, golden)) for other in others])
        setup(*fullest)
        method(*last)
        clean = answer()
        held, fresh = (all(map(torch.equal, straight, again)) for again in (disturbed, clean))
        measured = (
            f"{chosen.label}: {'holds' if held else 'LOST'} while {', '.join(others) or 'nothing else'}"
            f" runs; a new start is {'clean' if fresh else 'NOT CLEAN'}"
        )
        yield Finding(
            "state",
            name,
            held and fresh,
            measured,
            "the same bits each time",
            "",
            {"held": held, "clean": fresh},
        )


def _first(program: Program, name: str, golden) -> tuple:
    return case_calls(program.artifact.methods[name].cases[0], program, program[name], golden)[1]
