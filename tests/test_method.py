"""Dimensions, weights, cases: what users type and what checks try."""

import pytest

from edgeexport.errors import UsageError
from edgeexport.method import Dim, Input, Method, Weights


def test_dim_sizes_are_bounds_and_primes():
    assert Dim("batch", 1, 16).sizes() == (1, 2, 3, 7, 13, 16)
    assert Dim("batch", 4, 4).sizes() == (4,)
    assert Dim("batch", 1, 64).sizes() == (1, 2, 3, 7, 13, 31, 61, 64)


@pytest.mark.parametrize("text", ["0:4", "4:1", "a:b", "", "1:", ":3x", "-1:2", "1.5"])
def test_bad_ranges_are_refused_with_an_example(text):
    if text == "1:":
        assert Dim.parse("batch", text) == Dim("batch", 1, 1)
        return
    with pytest.raises(UsageError, match="for example 1:16"):
        Dim.parse("batch", text)


def test_cases_vary_one_dimension_at_a_time_then_all():
    method = Method("m", None, (), (), (Dim("a", 1, 3), Dim("b", 2, 4)))
    assert method.cases() == [
        {"a": 1, "b": 2},
        {"a": 2, "b": 2},
        {"a": 3, "b": 2},
        {"a": 1, "b": 3},
        {"a": 1, "b": 4},
        {"a": 3, "b": 4},
    ]


def test_capture_sizes_are_never_one_where_more_is_allowed():
    method = Method("m", None, (), (), (Dim("a", 1, 3), Dim("b", 1, 1), Dim("c", 5, 9)))
    assert method.sizes() == {"a": 2, "b": 1, "c": 5}
    assert Input("x", ("a", 3, "c")).sized(method.sizes()) == (2, 3, 5)


def test_weights_parse():
    assert Weights.parse("pretrained").source == "pretrained"
    assert Weights.parse("random:7").seed == 7
    assert Weights.parse("dir/file.pt").path == "dir/file.pt"
    with pytest.raises(UsageError, match="random:7"):
        Weights.parse("random:x")
