"""A program's buffers as inputs: what a server holds outside."""

import pytest
import torch
from programs import captured
from torch import nn

from edgeexport.artifact.program_state import copied, lift_state, mutated_buffers


class Counter(nn.Module):
    """Adds to a sum that it keeps; `table` is a buffer that nothing changes."""

    def __init__(self, adds=True):
        super().__init__()
        self.sum, self.table = nn.Buffer(torch.zeros(4)), nn.Buffer(torch.arange(4.0))
        self.adds = adds

    def forward(self, x):
        if self.adds:
            self.sum.add_(x)
        return self.sum * self.table


@pytest.fixture(scope="module")
def programs():
    return {adds: captured(Counter(adds), torch.ones(4)) for adds in (True, False)}


def test_state_is_written_in_place_and_starts_where_it_is_told(programs):
    names = mutated_buffers(programs.values())
    assert names == ("sum",)
    run = lift_state(programs[True], names).module()
    state = torch.full((4,), 5.0)
    assert run(torch.ones(4), state).tolist() == [0.0, 6.0, 12.0, 18.0] and state.tolist() == [6.0] * 4


def test_a_method_that_only_reads_the_state_takes_it_too(programs):
    lifted = lift_state(programs[False], ("sum",))
    assert lifted.module()(torch.ones(4), torch.full((4,), 2.0)).tolist() == [0.0, 2.0, 4.0, 6.0]
    assert "sum" not in lifted.state_dict and "table" in lifted.state_dict


def test_a_program_without_state_takes_what_it_took(programs):
    plain = captured(nn.Linear(4, 2), torch.ones(1, 4))
    assert lift_state(plain, ("sum",)).graph_signature.user_inputs == plain.graph_signature.user_inputs


def test_the_original_and_a_copy_are_separate(programs):
    before = str(programs[True].graph)
    lift_state(programs[True], ("sum",))
    other = copied(programs[True])
    for node in list(other.graph.nodes):
        node.meta.clear()
    assert str(programs[True].graph) == before and all(
        "val" in n.meta for n in programs[True].graph.nodes if n.op == "placeholder"
    )
    assert other.state_dict["table"] is programs[True].state_dict["table"], "weights are shared"
