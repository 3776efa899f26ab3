"""What detectors need: split_as_slice, merge_slices, softmax_over_last, decompose_upsample,
upsample_late.
"""

import pytest
import torch
from programs import captured, error, operators, rewritten
from torch import nn

from edgeexport.compiler.passes.decompose_upsample import decompose_upsample
from edgeexport.compiler.passes.merge_slices import merge_slices
from edgeexport.compiler.passes.simplify_layout import simplify_layout
from edgeexport.compiler.passes.softmax_over_last import softmax_over_last
from edgeexport.compiler.passes.split_as_slice import split_as_slice
from edgeexport.compiler.passes.upsample_late import upsample_late

BATCH = {0: torch.export.Dim("b", min=1, max=16)}
SIZES = (1, 2, 7, 16)


def worst(module, program, *shape):
    return max(error(module, program, torch.randn(b, *shape)) for b in SIZES)


class Apply(nn.Module):
    """A function as a module."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


@pytest.mark.parametrize(
    "split",
    [
        lambda x: x.chunk(2, 1),
        lambda x: x.chunk(3, dim=-3),
        lambda x: x.split(4, 1),
        lambda x: x.split([1, 2, 4], 1),
        lambda x: torch.split_with_sizes(x, [5, 2], dim=1),
    ],
)
def test_parts_become_slices(split):
    module = Apply(lambda x: tuple(part * 2.0 for part in split(x)))
    program, changes = rewritten(captured(module, torch.randn(2, 7, 4, 4), dynamic=BATCH), split_as_slice)
    assert changes >= 2 and not {"chunk", "split", "split_with_sizes", "getitem"} & set(operators(program))
    assert worst(module, program, 7, 4, 4) == 0.0


def test_a_part_that_nobody_takes_costs_nothing():
    module = Apply(lambda x: x.split([3, 4], 1)[1] + 1.0)
    program, changes = rewritten(captured(module, torch.randn(2, 7)), split_as_slice)
    assert (
        changes == 1 and operators(program)["slice"] == 1 and error(module, program, torch.randn(2, 7)) == 0.0
    )


@pytest.mark.parametrize(
    ("function", "x", "dynamic"),
    [
        (lambda x: x.split([1, 1], 1)[0] * 2, torch.ones(2, 2, dtype=torch.int64), None),
        (
            lambda x: x.chunk(2, 1)[0] * 2.0,
            torch.randn(2, 8),
            {1: 2 * torch.export.Dim("half", min=2, max=8)},
        ),
    ],
    ids=["integers", "dynamic"],
)
def test_splits_that_no_delegate_takes_are_left_alone(function, x, dynamic):
    assert rewritten(captured(Apply(function), x, dynamic=dynamic), split_as_slice)[1] == 0


def test_slices_in_order_are_joined():
    def csp(x):
        a, b, c = x.split([2, 3, 2], 1)
        return (
            torch.cat([a, b, c, b * 2.0], 1),
            torch.cat([x[:, :1] + 1.0, b, c], 1),
            torch.cat([a, b], -1 - x.dim() + 2),
        )

    module = Apply(csp)
    program, changes = rewritten(
        captured(module, torch.randn(2, 7, 4), dynamic=BATCH), split_as_slice, merge_slices
    )
    assert changes == 3 and operators(program)["cat"] == 2
    assert sorted(len(n.args[0]) for n in program.graph.nodes if n.target is torch.ops.aten.cat.default) == [
        2,
        2,
    ]
    assert worst(module, program, 7, 4) == 0.0


@pytest.mark.parametrize(
    "function",
    [
        lambda x: torch.cat([x[:, 3:], x[:, :3]], 1),
        lambda x: torch.cat([x[:, :3], x[:, 4:]], 1),
        lambda x: torch.cat([x[:, :3], x[:, 3:6]], 2),
        lambda x: torch.cat([x[:, :3], (x * 2.0)[:, 3:6]], 1),
        lambda x: torch.cat([x, x], 1),
        lambda x: torch.cat([x[:, 0:4:2], x[:, 4:]], 1),
    ],
    ids=["order", "gap", "another dimension", "another tensor", "whole", "step"],
)
def test_other_concatenations_are_left_alone(function):
    program, changes = rewritten(captured(Apply(function), torch.randn(2, 6, 4)), merge_slices)
    assert changes == 0 and error(Apply(function), program, torch.randn(2, 6, 4)) == 0.0


@pytest.mark.parametrize("dim", [1, 2, -3])
def test_softmax_over_another_dimension_is_moved(dim):
    module = Apply(lambda x: x.softmax(dim))
    program, changes = rewritten(captured(module, torch.randn(2, 16, 4, 6), dynamic=BATCH), softmax_over_last)
    (softmax,) = [n for n in program.graph.nodes if "softmax" in str(n.target)]
    assert changes == 1 and softmax.args[1] == 3
    assert worst(module, program, 16, 4, 6) < 1e-6


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x.softmax(-1),
        lambda x: x.softmax(2),
        lambda x: x.softmax(0, dtype=torch.float64),
        lambda x: x.log_softmax(1),
    ],
)
def test_other_softmaxes_are_left_alone(function):
    assert rewritten(captured(Apply(function), torch.randn(2, 3, 4)), softmax_over_last)[1] == 0


def up(factor=2.0, **options):
    return nn.Upsample(scale_factor=factor, mode="nearest", **options)


@pytest.mark.parametrize(
    "upsample", [up(), up((3.0, 1.0)), up((1.0, 2.0)), nn.Upsample(size=(12, 20))], ids=str
)
def test_nearest_upsampling_becomes_concatenation(upsample):
    program, changes = rewritten(
        captured(upsample, torch.randn(2, 3, 4, 5), dynamic=BATCH), decompose_upsample
    )
    assert changes == 1 and not any("upsample" in name for name in operators(program))
    assert max(len(n.meta["val"].shape) for n in program.graph.nodes if "val" in n.meta) == 4
    assert worst(upsample, program, 3, 4, 5) == 0.0


@pytest.mark.parametrize("flipped", [False, True])
def test_an_added_upsampling_is_broadcast(flipped):
    class Pyramid(nn.Module):
        def __init__(self):
            super().__init__()
            self.fine = nn.Conv2d(3, 3, 3, padding=1)
            self.coarse = nn.Conv2d(3, 3, (2, 3), stride=(2, 3))

        def forward(self, x):
            fine, coarse = self.fine(x), up((2.0, 3.0))(self.coarse(x))
            return fine + coarse if flipped else coarse + fine

    module = Pyramid()
    program, changes = rewritten(captured(module, torch.randn(2, 3, 8, 9), dynamic=BATCH), decompose_upsample)
    assert (
        changes == 1
        and "cat" not in operators(program)
        and not any("upsample" in name for name in operators(program))
    )
    assert worst(module, program, 3, 8, 9) == 0.0


@pytest.mark.parametrize(
    "function",
    [
        lambda x: up()(x) + up()(x),
        lambda x: torch.add(up()(x), up()(x * 2.0), alpha=2),
        lambda x: up()(x) + 1.0,
        lambda x: up()(x) + x[:, :1, :1, :1],
    ],
    ids=["itself", "scaled", "number", "broadcast"],
)
def test_other_sums_with_an_upsampling_are_right_too(function):
    module = Apply(function)
    program, _ = rewritten(captured(module, torch.randn(2, 3, 4, 5), dynamic=BATCH), decompose_upsample)
    assert (
        not any("upsample" in name for name in operators(program)) and worst(module, program, 3, 4, 5) == 0.0
    )


@pytest.mark.parametrize(
    ("upsample", "x", "dynamic"),
    [
        (up(1.5), torch.randn(2, 3, 4, 4), None),
        (up(5.0), torch.randn(2, 3, 4, 4), None),
        (nn.Upsample(scale_factor=0.5), torch.randn(2, 3, 4, 4), None),
        (up(), torch.randn(2, 3, 8, 8), {2: torch.export.Dim("h", min=2, max=16)}),
        (nn.Upsample(scale_factor=2, mode="bilinear"), torch.randn(2, 3, 4, 4), None),
    ],
    ids=["1.5", "5", "down", "dynamic", "bilinear"],
)
def test_other_upsamplings_are_left_alone(upsample, x, dynamic):
    assert rewritten(captured(upsample, x, dynamic=dynamic), decompose_upsample)[1] == 0


class TopDown(nn.Module):
    """A level of a feature pyramid: upsampled, joined with a finer level, and narrowed."""

    def __init__(self, order=(0, 1), width=4, bias=True, shared=False, **options):
        super().__init__()
        self.coarse = nn.Conv2d(3, 6, 2, stride=2)
        self.narrow = nn.Conv2d(
            9 if len(order) == 2 else 6, width, **({"kernel_size": 1} | options), bias=bias
        )
        self.order, self.shared = order, shared

    def forward(self, x):
        parts = [up()(self.coarse(x)), x]
        joined = torch.cat([parts[i] for i in self.order], 1) if len(self.order) == 2 else parts[0]
        return (self.narrow(joined), joined) if self.shared else self.narrow(joined)


@pytest.mark.parametrize(
    "module",
    [TopDown(), TopDown((1, 0)), TopDown(bias=False), TopDown((0,))],
    ids=["first", "second", "no bias", "alone"],
)
def test_upsampling_moves_behind_a_pointwise_convolution(module):
    program, changes = rewritten(captured(module, torch.randn(2, 3, 8, 8), dynamic=BATCH), upsample_late)
    assert changes == 1 and "cat" not in operators(program)
    (upsampled,) = [n for n in program.graph.nodes if "upsample" in str(n.target)]
    assert upsampled.meta["val"].shape[1] == 4, "after it, on fewer channels"
    assert worst(module, program, 3, 8, 8) < 1e-5
    program, changes = rewritten(program, decompose_upsample, simplify_layout)
    assert (
        not any("upsample" in name for name in operators(program)) and worst(module, program, 3, 8, 8) < 1e-5
    )


@pytest.mark.parametrize(
    "module",
    [
        TopDown(shared=True),
        TopDown(width=8),
        TopDown(kernel_size=3),
        TopDown(stride=2),
        TopDown((0,), width=8),
        TopDown(groups=3, width=6),
    ],
    ids=["shared", "wider", "3 x 3", "stride", "alone, wider", "groups"],
)
def test_upsampling_that_should_not_move_stays(module):
    assert rewritten(captured(module, torch.randn(2, 3, 8, 8)), upsample_late)[1] == 0


def test_all_of_it_is_one_delegate_with_a_dynamic_batch(tmp_path):
    """Stock lowering leaves chunk, upsampling and the softmax over bins outside."""
    from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
    from executorch.exir import to_edge_transform_and_lower
    from executorch.runtime import Runtime

    from edgeexport.compiler.recipes.xnnpack import recipe
    from edgeexport.compiler.rewrite import run_passes

    class Neck(nn.Module):
        def __init__(self):
            super().__init__()
            self.down, self.after = nn.Conv2d(4, 8, 2, stride=2), nn.Conv2d(12, 16, 3, padding=1)

        def forward(self, x):
            a, b = self.after(torch.cat([up()(self.down(x)), x], 1)).chunk(2, 1)
            y = torch.cat([a, b, torch.nn.functional.silu(b)], 1)
            return y.reshape(y.shape[0], 8, 3, 64).softmax(1)

    module, x = Neck().eval(), torch.randn(2, 4, 8, 8)
    stock = to_edge_transform_and_lower(captured(module, x), partitioner=[XnnpackPartitioner()])
    outside = " ".join(str(n.target) for n in stock.exported_program().graph.nodes)
    assert all(name in outside for name in ("split_with_sizes_copy", "_softmax", "upsample_nearest2d"))
    made = recipe("fp32")
    program, _ = run_passes(captured(module, x, dynamic=BATCH), made.passes)
    delegation = made.emit({"forward": program}, tmp_path / "p.pte")["forward"]
    assert delegation.delegates == 1 and delegation.outside == ()
    loaded = Runtime.get().load_program(tmp_path / "p.pte").load_method("forward")
    for batch in SIZES:
        x = torch.randn(batch, 4, 8, 8)
        with torch.no_grad():
            assert torch.allclose(loaded.execute([x])[0], module(x), atol=1e-6), batch
