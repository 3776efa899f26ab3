"""merge_layout, slice_early, select_as_slice, InferViewDimension."""

import pytest
import torch
from programs import captured, error, operators, rewritten
from torch import nn

from edgeexport.compiler.passes.merge_layout import merge_layout
from edgeexport.compiler.passes.select_as_slice import select_as_slice
from edgeexport.compiler.passes.simplify_layout import simplify_layout
from edgeexport.compiler.passes.slice_early import slice_early

BATCH = {0: torch.export.Dim("b", min=1, max=16)}


class WindowsAndBack(nn.Module):
    """Window partition and its inverse: nothing is left."""

    def forward(self, x):
        b, h, w, c = x.shape
        y = x.reshape(b, h // 4, 4, w // 4, 4, c).permute(0, 1, 3, 2, 4, 5).reshape(-1, 16, c)
        y = y.reshape(b, h // 4, w // 4, 4, 4, c).permute(0, 1, 3, 2, 4, 5).reshape(b, h, w, c)
        return y + 1.0


class HeadsToChannelsFirst(nn.Module):
    """Head split, then frames channels first: one permutation is left, straight to the last
    shape.
    """

    def forward(self, x):
        b, n, c = x.shape
        y = x.reshape(b, n, 2, c // 2).permute(0, 2, 1, 3).reshape(b * 2, 3, 4, c // 2).permute(0, 3, 1, 2)
        return y + 1.0


@pytest.mark.parametrize(
    ("module", "shape", "left"), [(WindowsAndBack(), (8, 8, 3), 0), (HeadsToChannelsFirst(), (12, 6), 2)]
)
def test_chains_are_merged(module, shape, left):
    program = captured(module, torch.randn(2, *shape), dynamic=BATCH)
    program, _ = rewritten(program, simplify_layout, merge_layout)
    assert operators(program)["permute"] <= left
    assert max(error(module, program, torch.randn(b, *shape)) for b in (1, 2, 7, 16)) == 0.0


def test_a_chain_with_one_permutation_is_left_alone():
    class One(nn.Module):
        def forward(self, x):
            return x.reshape(2, 6, 4).permute(0, 2, 1).reshape(2, 24) + 1.0

    assert rewritten(captured(One(), torch.randn(2, 24)), simplify_layout, merge_layout)[1] == 0


def test_random_chains_keep_their_meaning():
    """Reshapes to random factorisations and random permutations, against torch itself."""
    generator = torch.Generator().manual_seed(0)

    def integers(high, count):
        return torch.randint(high, (count,), generator=generator).tolist()

    factorisations = [(2, 3, 4, 5), (6, 20), (24, 5), (2, 60), (4, 5, 6), (3, 2, 2, 2, 5), (120,), (10, 12)]
    for _ in range(25):
        steps = [
            (factorisations[i], torch.randperm(len(factorisations[i]), generator=generator).tolist())
            for i in integers(len(factorisations), 3)
        ]

        class Chain(nn.Module):
            def forward(self, x, steps=steps):
                for shape, order in steps:
                    x = x.reshape(shape).permute(order)
                return x + 1.0

        module, x = Chain(), torch.arange(120.0).reshape(8, 15)
        program, _ = rewritten(captured(module, x), simplify_layout, merge_layout)
        assert error(module, program, x) == 0.0, steps


class ClassToken(nn.Module):
    def __init__(self, also_whole=False):
        super().__init__()
        self.token = nn.Parameter(torch.randn(1, 1, 8))
        self.up, self.norm, self.head = nn.Linear(8, 8), nn.LayerNorm(8), nn.Linear(8, 3)
        self.also_whole = also_whole

    def forward(self, x):
        x = torch.cat([self.token.expand(x.shape[0], -1, -1), x], 1)
        y = x + torch.nn.functional.gelu(self.up(self.norm(x)))
        out = self.head(y)[:, 0]
        return (out, y) if self.also_whole else out


def test_slice_moves_before_the_work_and_the_concatenation():
    module = ClassToken()
    program = captured(module, torch.randn(2, 5, 8), dynamic=BATCH)
    program, _ = rewritten(program, simplify_layout, select_as_slice, slice_early, slice_early)
    widest = max(n.meta["val"].shape[1] for n in program.graph.nodes if "linear" in str(n.target))
    assert widest == 1 and "cat" not in operators(program)
    assert max(error(module, program, torch.randn(b, 5, 8)) for b in (1, 3, 16)) < 1e-5


def test_slice_stays_when_the_whole_is_needed_too():
    module, x = ClassToken(also_whole=True), torch.randn(2, 5, 8)
    program, _ = rewritten(captured(module, x), simplify_layout, select_as_slice, slice_early)
    assert operators(program)["cat"] == 1
    assert error(module, program, x) < 1e-5


def test_slice_early_on_random_elementwise_and_broadcast_graphs():
    class Broadcast(nn.Module):
        def __init__(self):
            super().__init__()
            self.gain = nn.Parameter(torch.randn(4))

        def forward(self, x):
            y = (x * self.gain + x.mean(-1, keepdim=True)).softmax(-1)
            return y.permute(0, 2, 1).reshape(2, 2, 2, 6)[:, :, :, 1:3]

    module, x = Broadcast(), torch.randn(2, 6, 4)
    program, changes = rewritten(captured(module, x), simplify_layout, slice_early)
    assert changes > 0 and error(module, program, x) < 1e-6


def test_select_becomes_slice_and_integers_stay():
    class Select(nn.Module):
        def forward(self, x):
            return x[:, -1] * 2

    module, x = Select(), torch.randn(2, 5, 3)
    program, changes = rewritten(captured(module, x), select_as_slice)
    assert changes == 1 and "select" not in operators(program) and error(module, program, x) == 0.0
    assert rewritten(captured(module, torch.ones(2, 5, 3, dtype=torch.int64)), select_as_slice)[1] == 0


def test_infer_view_dimension_keeps_a_dynamic_batch_in_one_delegate():
    from executorch.exir import to_edge_transform_and_lower

    from edgeexport.compiler.passes.infer_view_dimension import InferViewDimension
    from edgeexport.compiler.recipes.xnnpack import DynamicPartitioner

    class Heads(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(8, 8)

        def forward(self, x):
            y = (
                self.linear(x)
                .reshape(x.shape[0], -1, 2, 4)
                .permute(0, 2, 1, 3)
                .reshape(x.shape[0] * 2, -1, 4)
            )
            return (y[:, 1:] * 2.0).softmax(-1)

    def delegates(passes):
        program = captured(Heads(), torch.randn(2, 5, 8), dynamic=BATCH)
        edge = to_edge_transform_and_lower(
            program, partitioner=[DynamicPartitioner()], transform_passes=passes
        )
        calls = [str(n.target) for n in edge.exported_program().graph.nodes if n.op == "call_function"]
        return sum("delegate" in c for c in calls), sum("view_copy" in c for c in calls)

    without, with_pass = delegates([]), delegates([InferViewDimension()])
    assert without[1] > 0, "the failure without the pass: views stay outside"
    assert with_pass == (1, 0)


def test_broadcasts_of_rank_eight_are_merged():
    class RelativePosition(nn.Module):
        def forward(self, a, b):
            return a[:, :, :, :, None, :, None] + b[:, :, :, :, None, None, :] + 1.0

    from edgeexport.compiler.passes.lower_rank import lower_rank

    module, a, b = RelativePosition(), torch.randn(2, 3, 4, 5, 6), torch.randn(2, 3, 4, 5, 7)
    program, changes = rewritten(captured(module, a, b), lower_rank)
    adds = [n for n in program.graph.nodes if "add" in str(n.target)]
    assert changes == 1 and len(adds[0].meta["val"].shape) <= 6
    assert error(module, program, a, b) == 0.0


def test_rank_six_is_left_alone():
    class Add(nn.Module):
        def forward(self, a):
            return a + a.sum(0, keepdim=True)

    from edgeexport.compiler.passes.lower_rank import lower_rank

    assert rewritten(captured(Add(), torch.randn(1, 2, 3, 1, 2, 2)), lower_rank)[1] == 0


@pytest.mark.parametrize("index", [slice(1, None), slice(0, 3), slice(1, 3), slice(-2, None), slice(None)])
def test_updating_a_slice_becomes_a_concatenation(index):
    class Update(nn.Module):
        def forward(self, x):
            y = x * 2.0
            y[:, index] += 1.0
            return y

    from edgeexport.compiler.passes.scatter_as_cat import scatter_as_cat

    module, x = Update(), torch.randn(2, 5, 3)
    program, _ = rewritten(captured(module, x), scatter_as_cat)
    assert "slice_scatter" not in operators(program)
    assert error(module, program, x) == 0.0


def test_a_symbolic_size_is_divided():
    """[4, 6 * batch, 3] → back to the batch in front: as attention over rows of an image leaves
    it.
    """

    class Rows(nn.Module):
        def forward(self, x):
            b = x.shape[0]
            y = (x.permute(1, 0, 2, 3).reshape(4, b * 6, 3) * 2.0).softmax(-1)
            return y.reshape(4, b, 6, 3).permute(1, 2, 0, 3).reshape(b, 3, 2, 12).permute(0, 2, 1, 3) + 1.0

    module = Rows()
    program, changes = rewritten(
        captured(module, torch.randn(2, 4, 6, 3), dynamic=BATCH), simplify_layout, merge_layout
    )
    assert max(error(module, program, torch.randn(b, 4, 6, 3)) for b in (1, 2, 7, 16)) < 1e-6


def test_an_unsqueeze_of_two_dynamic_sizes_is_left_to_the_runtime(tmp_path):
    """Upstream's partitioner takes it, and lowering then ends with an error."""
    from executorch.runtime import Runtime

    from edgeexport.compiler.recipes.xnnpack import recipe

    class Labels(nn.Module):
        def forward(self, x):
            return (x * 2.0).unsqueeze(-1) - torch.tensor([1.0, 2.0])

    dims = {0: torch.export.Dim("b", min=1, max=4), 1: torch.export.Dim("n", min=1, max=9)}
    recipe("fp32").emit({"forward": captured(Labels(), torch.randn(2, 3), dynamic=dims)}, tmp_path / "p.pte")
    x = torch.randn(3, 7)
    answer = Runtime.get().load_program(tmp_path / "p.pte").load_method("forward").execute([x])[0]
    assert torch.allclose(answer, Labels()(x))
