"""Factors that go into weights, and those that cannot."""

import pytest
import torch
from programs import captured, error, operators, rewritten
from torch import nn

from edgeexport.compiler.passes.fold_scale import fold_scale
from edgeexport.compiler.passes.matmul_as_bmm import matmul_as_bmm
from edgeexport.compiler.passes.simplify_layout import simplify_layout

BEFORE = (simplify_layout, matmul_as_bmm)


class Query(nn.Module):
    """The scale of attention before the first product, after it, or by division; `shared` lets
    something else see the query.
    """

    def __init__(self, place, shared=False):
        super().__init__()
        self.query, self.key = nn.Linear(16, 16), nn.Linear(16, 16, bias=False)
        self.place, self.shared = place, shared

    def forward(self, x):
        q, k = (y.unflatten(-1, (2, 8)).transpose(1, 2) for y in (self.query(x), self.key(x)))
        scaled = q * 0.3 if self.place == "before" else q
        scores = scaled @ k.transpose(-1, -2)
        scores = (
            scores * 0.3 if self.place == "after" else scores / 3.0 if self.place == "divided" else scores
        )
        return (scores.softmax(-1), q) if self.shared else scores.softmax(-1)


@pytest.mark.parametrize("place", ["before", "after", "divided"])
def test_the_scale_of_attention_goes_into_the_query_map(place):
    x, module = torch.randn(2, 5, 16), Query(place)
    program, changes = rewritten(captured(module, x), *BEFORE, fold_scale)
    assert changes == 1 and not {"mul", "div"} & set(operators(program))
    assert error(module, program, x) < 1e-6


@pytest.mark.parametrize("place", ["before", "after"])
def test_a_query_that_something_else_sees_is_left_alone(place):
    x, module = torch.randn(2, 5, 16), Query(place, shared=True)
    program, changes = rewritten(captured(module, x), *BEFORE, fold_scale)
    assert changes == 0 and operators(program)["mul"] == 1 and error(module, program, x) == 0.0


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.map = nn.Linear(16, 16)

    def forward(self, x):
        return self.map(x) * 2.0 + self.map(x + 1.0)


class Other(nn.Module):
    def forward(self, x):
        return torch.relu(x) * 0.5, x * 1.0


def test_a_weight_with_another_reader_is_left_alone():
    assert rewritten(captured(Tied(), torch.randn(3, 16)), fold_scale)[1] == 0


def test_a_factor_of_one_goes_away_and_others_without_a_linear_map_stay():
    program, changes = rewritten(captured(Other(), torch.randn(3, 16)), fold_scale)
    assert changes == 1 and operators(program)["mul"] == 1


def test_a_factor_that_is_a_tensor_stays():
    class ByTensor(nn.Module):
        def __init__(self):
            super().__init__()
            self.map = nn.Linear(16, 16)

        def forward(self, x, scale):
            return self.map(x) * scale

    assert rewritten(captured(ByTensor(), torch.randn(3, 16), torch.tensor([2.0])), fold_scale)[1] == 0
