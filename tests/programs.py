"""What the tests of passes share: capture a module, see its operators, compare before and after."""

from collections import Counter

import torch

from edgeexport.compiler.backend_guards import no_backend_guards
from edgeexport.compiler.rewrite import run_passes


def captured(module, *inputs, dynamic=None):
    """A functional program of `module`; `dynamic` is {axis: Dim} for the first input."""
    shapes = None if dynamic is None else (dynamic, *([None] * (len(inputs) - 1)))
    with torch.no_grad(), no_backend_guards():
        return torch.export.export(module.eval(), inputs, dynamic_shapes=shapes).run_decompositions({})


def operators(program):
    """How often each operator is called, by name without overload."""
    calls = (n for n in program.graph.nodes if n.op == "call_function")
    return Counter(getattr(n.target, "_opname", getattr(n.target, "__name__", "")) for n in calls)


def rewritten(program, *passes):
    """The program after `passes`, and the number of changes of the last one."""
    program, reports = run_passes(program, passes)
    return program, reports[-1].changes


def error(module, program, *inputs):
    """Largest absolute difference between the module and the program."""
    with torch.no_grad():
        want, got = module(*inputs), program.module()(*inputs)
    pairs = zip(want, got) if isinstance(want, (tuple, list)) else [(want, got)]
    return max(float((a - b).abs().max()) for a, b in pairs)
