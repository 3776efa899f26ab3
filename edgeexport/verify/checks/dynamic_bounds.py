"""Is one past the greatest size refused, by our wrapper and by the runtime itself?"""

from __future__ import annotations

from collections.abc import Iterator

from edgeexport.artifact.cases import GoldenAnswers
from edgeexport.errors import InputError, RuntimeFault
from edgeexport.method import Finding, draw
from edgeexport.runtime.program import Program


def check(program: Program) -> Iterator[Finding]:
    """One finding for each dynamic dimension of each method."""
    outputs = GoldenAnswers(program.artifact.golden())
    for name in program.methods:
        method = program[name]
        for dim in method.dims.values():
            if not dim.dynamic:
                continue
            sizes = {d.name: d.max for d in method.dims.values()} | {dim.name: dim.max + 1}
            inputs = [draw(spec, sizes, 0, outputs) for spec in method.inputs]
            wrapper = _refusal(lambda: method.validate(inputs), InputError)
            runtime, judged = "", "not asked: an index out of range would end the process"
            if program.artifact.target.refuses_values or any(dim.name in i.shape for i in method.inputs):
                runtime = _refusal(lambda: method.execute(inputs), RuntimeFault)
                judged = "refuses" if runtime else "ACCEPTS"
            measured = (
                f"{dim.name}={dim.max + 1}: wrapper {'refuses' if wrapper else 'ACCEPTS'}, runtime {judged}"
            )
            yield Finding(
                "dynamic_bounds",
                name,
                bool(wrapper) and judged != "ACCEPTS",
                measured,
                "both refuse",
                wrapper or "",
                {"dim": dim.name, "size": dim.max + 1, "runtime_says": runtime or ""},
            )


def _refusal(call, kind: type[Exception]) -> str | None:
    try:
        call()
    except kind as error:
        return str(error)
    return None
