"""What runs in delegates?

Recorded at lowering; the file must call as many delegates as were counted.
"""

from __future__ import annotations

from collections.abc import Iterator

from edgeexport.artifact.manifest import Delegation
from edgeexport.artifact.pte import read_program
from edgeexport.method import Finding
from edgeexport.runtime.program import Program


def check(program: Program) -> Iterator[Finding]:
    """One finding a method: number of delegates, nodes inside, and each kind of operator outside
    with the reason.
    """
    plans = {plan.name: plan for plan in read_program(program.artifact.program_path).execution_plan}
    for name, entry in program.artifact.methods.items():
        counted = entry.delegation or Delegation(0, 0, ())
        found = len(plans[name].delegates)
        outside = sum(o.count for o in counted.outside)
        reasons = "; ".join(f"{o.count} x {o.operator}: {o.reason}" for o in counted.outside)
        yield Finding(
            "delegation",
            name,
            found == counted.delegates,
            f"{found} delegates with {counted.delegated_nodes} nodes, {outside} nodes outside",
            f"{counted.delegates} delegates, as lowered",
            reasons,
        )
