"""run_passes holds every pass to its conditions, and says which one failed."""

import pytest
import torch
from programs import captured
from torch import nn

from edgeexport.compiler.rewrite import Editor, PassResult, aten, run_passes
from edgeexport.errors import RewriteError


class Double(nn.Module):
    def forward(self, x):
        return x * 2.0


def changes_the_output(program):
    editor = Editor(program)
    (node,) = editor.nodes(aten.mul.Tensor)
    editor.replace(node, editor.reshape(node.args[0], (6,), like=node))
    return editor.finish()


def raises(program):
    raise ZeroDivisionError("oops")


def does_nothing(program):
    return Editor(program).finish()


def test_a_pass_that_changes_the_interface_is_stopped_and_named():
    program = captured(Double(), torch.randn(2, 3))
    with pytest.raises(
        RewriteError, match="changes_the_output failed.*outputs changed.*Passes before it: does_nothing"
    ):
        run_passes(program, [does_nothing, changes_the_output])


def test_a_pass_that_raises_is_named_with_what_to_do():
    with pytest.raises(RewriteError, match="raises failed.*ZeroDivisionError: oops.*--skip-pass raises"):
        run_passes(captured(Double(), torch.randn(2, 3)), [raises])


def test_nothing_changed_is_said_truthfully():
    program = captured(Double(), torch.randn(2, 3))
    assert does_nothing(program) == PassResult(program, False, 0)
    assert run_passes(program, [does_nothing])[1][0].changes == 0


def test_a_pass_that_specialises_a_dimension_is_stopped():
    def specialises(program):
        node = next(n for n in program.graph.nodes if n.op == "placeholder")
        assert node.meta["val"].shape[0] == 2  # asking adds the guard
        return PassResult(program, False)

    program = captured(Double(), torch.randn(2, 3), dynamic={0: torch.export.Dim("b", min=1, max=16)})
    with pytest.raises(RewriteError, match="inputs changed"):
        run_passes(program, [specialises])
