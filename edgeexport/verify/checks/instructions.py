"""How many instructions does a call take on an emulated board?

It is the same in every run, where time in an emulator means nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from edgeexport.artifact.cases import GoldenAnswers, answer
from edgeexport.method import Finding
from edgeexport.runtime.program import Program

REPEATABLE_TO = 1e-3
"""Two calls may differ by this share: 0 to 2.5e-5 was seen. A method whose work depends on what
earlier calls left behind differs by more.
"""

MOST_CALLS = 3


def check(program: Program) -> Iterator[Finding]:
    """One finding a method: instructions of a call at its least case, the kinds of vector
    instruction among them; nothing on a real CPU.
    """
    if not program.emulated:
        return
    golden = GoldenAnswers(program.artifact.golden())
    for name in program.methods:
        (case,) = program.cases(name)
        counts = program.engine.instructions(name)
        while len(counts) < 2 or (
            len(counts) < MOST_CALLS and not _same(*counts[-2:])
        ):  # the first prepares; other checks may have made the others
            answer(program, name, case, golden)
            counts = program.engine.instructions(name)
        first, last = (count["all"] for count in counts[-2:])
        kinds = ", ".join(
            f"{100 * n / last:.0f} % {kind}" for kind, n in counts[-1].items() if kind != "all" and n
        )
        yield Finding(
            "instructions",
            name,
            _same(*counts[-2:]),
            f"{last:.4e} a call ({kinds or 'no vector products'}); the call before {last - first:+d}",
            f"the same to {REPEATABLE_TO:.1%}",
            "",
            {"instructions": counts[-1], "runtime": str(program.runtime)},
        )


def _same(before: Mapping[str, int], after: Mapping[str, int]) -> bool:
    return abs(before["all"] - after["all"]) <= REPEATABLE_TO * after["all"]
