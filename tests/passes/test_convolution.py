"""conv3d_as_conv2d, max_pool3d_as_max_pool2d, conv_transpose_as_linear, fold_transposes."""

import pytest
import torch
from programs import captured, error, operators, rewritten
from torch import nn

from edgeexport.compiler.passes.conv3d_as_conv2d import conv3d_as_conv2d
from edgeexport.compiler.passes.conv_transpose_as_linear import conv_transpose_as_linear
from edgeexport.compiler.passes.max_pool3d_as_max_pool2d import max_pool3d_as_max_pool2d
from edgeexport.compiler.passes.merge_pointwise import merge_pointwise

BATCH = {0: torch.export.Dim("b", min=1, max=16)}


@pytest.mark.parametrize(
    "conv",
    [
        nn.Conv3d(4, 8, (3, 7, 7), stride=(2, 4, 4), padding=(1, 3, 3)),
        nn.Conv3d(4, 8, 3, padding=1),
        nn.Conv3d(4, 8, (1, 3, 3)),
        nn.Conv3d(4, 8, (2, 3, 3), stride=(2, 1, 1), bias=False),
        nn.Conv3d(4, 8, (3, 3, 3), padding=(0, 1, 1)),
        nn.Conv3d(4, 4, 3, padding=1, groups=4),
        nn.Conv3d(4, 8, (3, 3, 3), stride=(1, 2, 2), padding=(1, 1, 1), groups=2, bias=True),
        nn.Conv3d(4, 4, (3, 3, 3), padding=(0, 1, 1), groups=4),
        nn.Conv3d(4, 4, (3, 3, 3), padding=(2, 1, 1), groups=4),
    ],
    ids=lambda c: f"k{c.kernel_size}s{c.stride}p{c.padding}g{c.groups}",
)
def test_conv3d_becomes_conv2d(conv):
    program, changes = rewritten(
        captured(conv, torch.randn(2, 4, 8, 16, 16), dynamic=BATCH), conv3d_as_conv2d
    )
    assert changes == 1 and "conv3d" not in operators(program)
    assert max(error(conv, program, torch.randn(b, 4, 8, 16, 16)) for b in (1, 2, 5)) < 1e-5


@pytest.mark.parametrize("conv", [nn.Conv3d(4, 8, 3, dilation=2), nn.Conv3d(4, 4, 3, stride=2, groups=4)])
def test_conv3d_that_cannot_is_left_alone(conv):
    assert rewritten(captured(conv, torch.randn(2, 4, 8, 16, 16)), conv3d_as_conv2d)[1] == 0


def test_max_pool3d_within_frames_becomes_max_pool2d():
    pool = nn.MaxPool3d((1, 3, 3), stride=(1, 2, 2), padding=(0, 1, 1))
    program, changes = rewritten(
        captured(pool, torch.randn(2, 4, 8, 16, 16), dynamic=BATCH), max_pool3d_as_max_pool2d
    )
    assert changes == 1 and operators(program)["max_pool2d"] == 1
    assert max(error(pool, program, torch.randn(b, 4, 8, 16, 16)) for b in (1, 5)) == 0.0


def test_max_pool3d_over_time_is_left_alone():
    assert (
        rewritten(captured(nn.MaxPool3d(2), torch.randn(2, 4, 8, 16, 16)), max_pool3d_as_max_pool2d)[1] == 0
    )


@pytest.mark.parametrize("kernel", [2, (2, 3)])
def test_conv_transpose_without_overlap_becomes_linear(kernel):
    conv = nn.ConvTranspose2d(6, 4, kernel, stride=kernel)
    program, changes = rewritten(
        captured(conv, torch.randn(2, 6, 5, 7), dynamic=BATCH), conv_transpose_as_linear
    )
    assert changes == 1 and operators(program)["linear"] == 1
    assert max(error(conv, program, torch.randn(b, 6, 5, 7)) for b in (1, 3)) < 1e-5


@pytest.mark.parametrize(
    "conv",
    [
        nn.ConvTranspose2d(6, 4, 3, stride=2),
        nn.ConvTranspose2d(6, 4, 2, stride=2, padding=1),
        nn.ConvTranspose2d(6, 4, 2, stride=2, groups=2),
    ],
)
def test_conv_transpose_that_cannot_is_left_alone(conv):
    assert rewritten(captured(conv, torch.randn(2, 6, 5, 7)), conv_transpose_as_linear)[1] == 0


def test_transposes_around_a_convolution_are_folded():
    """Channels-last data in, channels-last data out: NCHW is only what the operator's signature
    says.
    """
    from executorch.backends.xnnpack import xnnpack_preprocess
    from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
    from executorch.exir import to_edge_transform_and_lower
    from executorch.runtime import Runtime

    from edgeexport.compiler.passes.fold_transposes import fold_transposes
    from edgeexport.compiler.xnnpack_graphs import rewritten_graphs

    class ChannelsLast(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = nn.Conv2d(4, 4, 3, padding=1)

        def forward(self, x):
            return self.conv(x.permute(0, 3, 1, 2)).permute(0, 2, 3, 1) * 2.0

    module, x = ChannelsLast().eval(), torch.randn(1, 6, 6, 4)
    left = {}
    original = xnnpack_preprocess.serialize_xnnpack_binary

    def lowered(name):
        def counting(graph, constants):
            left[name] = sum("Transpose" in type(n.xnode_union).__name__ for n in graph.xnodes)
            return original(graph, constants)

        xnnpack_preprocess.serialize_xnnpack_binary = counting
        program = captured(module, x)
        if name == "folded":
            with rewritten_graphs(fold_transposes):
                return to_edge_transform_and_lower(
                    program, partitioner=[XnnpackPartitioner()]
                ).to_executorch()
        return to_edge_transform_and_lower(program, partitioner=[XnnpackPartitioner()]).to_executorch()

    try:
        stock, folded = lowered("stock"), lowered("folded")
    finally:
        xnnpack_preprocess.serialize_xnnpack_binary = original
    assert left["stock"] == 4 and left["folded"] == 0
    answers = [
        Runtime.get().load_program(p.buffer).load_method("forward").execute([x])[0] for p in (stock, folded)
    ]
    assert torch.allclose(answers[0], module(x), atol=1e-5) and torch.equal(answers[0], answers[1])


class Pyramid(nn.Module):
    def __init__(self, middle=16, shared=False, kernel=1, bias=True):
        super().__init__()
        self.widen = nn.Conv2d(4, middle, kernel, bias=bias)
        self.narrow = nn.Conv2d(middle, 3, 1, bias=bias)
        self.shared = shared

    def forward(self, x):
        wide = self.widen(x)
        return (self.narrow(wide), wide) if self.shared else self.narrow(wide)


@pytest.mark.parametrize("bias", [True, False])
def test_pointwise_convolutions_are_merged(bias):
    module = Pyramid(bias=bias)
    program, changes = rewritten(captured(module, torch.randn(2, 4, 5, 5), dynamic=BATCH), merge_pointwise)
    assert changes == 1 and operators(program)["conv2d"] == 1
    assert max(error(module, program, torch.randn(b, 4, 5, 5)) for b in (1, 3)) < 1e-5


@pytest.mark.parametrize(
    "module",
    [Pyramid(middle=1), Pyramid(shared=True), Pyramid(kernel=3)],
    ids=["more work", "shared", "3 x 3"],
)
def test_pointwise_convolutions_that_should_not_are_left_alone(module):
    assert rewritten(captured(module, torch.randn(2, 4, 5, 5)), merge_pointwise)[1] == 0
