"""Outputs of server programs are contiguous."""

import pytest
import torch
from programs import captured, error, operators, rewritten
from torch import nn

from edgeexport.compiler.passes.contiguous_outputs import contiguous_outputs
from edgeexport.compiler.passes.simplify_layout import simplify_layout


class Heads(nn.Module):
    def forward(self, x):
        heads = x.unflatten(-1, (2, -1)).transpose(1, 2)
        return heads.contiguous(), x * 2.0


@pytest.mark.parametrize("dynamic", [None, {0: torch.export.Dim("batch", min=1, max=9)}])
def test_an_output_that_became_a_view_is_copied(dynamic):
    x = torch.randn(3, 5, 16)
    program, dropped = rewritten(captured(Heads(), x, dynamic=dynamic), simplify_layout)
    assert dropped and not program.module()(x)[0].is_contiguous(), "what this pass is for"
    program, changes = rewritten(program, contiguous_outputs)
    assert changes == 1 and all(t.is_contiguous() for t in program.module()(x))
    assert error(Heads(), program, x) == 0.0
    if dynamic:
        assert all(t.is_contiguous() for t in program.module()(torch.randn(9, 5, 16))), "still dynamic"


def test_contiguous_outputs_are_left_alone():
    x = torch.randn(3, 16)
    program, changes = rewritten(captured(nn.Linear(16, 4), x), contiguous_outputs)
    assert changes == 0 and operators(program) == {"linear": 1}
