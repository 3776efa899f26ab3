"""strip_assertions, simplify_layout, fold_constants."""

import torch
from programs import captured, error, operators, rewritten
from torch import nn

from edgeexport.compiler.passes.fold_constants import fold_constants
from edgeexport.compiler.passes.simplify_layout import simplify_layout
from edgeexport.compiler.passes.strip_assertions import strip_assertions


class Casts(nn.Module):
    def forward(self, x):
        return x.to(torch.float32) + 1.0


def test_strip_assertions_fires_on_casts_and_only_there():
    program, changes = rewritten(captured(Casts(), torch.randn(2, 3)), strip_assertions)
    assert changes == 1 and "_assert_tensor_metadata" not in operators(program)
    _, again = rewritten(program, strip_assertions)
    assert again == 0


class Layout(nn.Module):
    def forward(self, x):
        y = x.transpose(1, 2).transpose(1, 2).contiguous().unsqueeze(0).squeeze(0).flatten(1).clone()
        return y.reshape(x.shape[0], 3, 4) * 2.0


def test_simplify_layout_leaves_one_multiplication():
    module, x = Layout(), torch.randn(2, 3, 4)
    program, changes = rewritten(captured(module, x), simplify_layout, simplify_layout)
    assert sum(operators(program).values()) == 1
    assert error(module, program, x) == 0.0


def test_simplify_layout_keeps_a_copy_that_is_returned():
    class Copy(nn.Module):
        def forward(self, x):
            return x.clone()

    program, changes = rewritten(captured(Copy(), torch.randn(2)), simplify_layout)
    assert changes == 0 and operators(program)["clone"] == 1


def test_simplify_layout_writes_one_inferred_size_for_a_dynamic_batch():
    class Heads(nn.Module):
        def forward(self, x):
            return x.reshape(x.shape[0] * 2, 3) + 0.5

    module = Heads()
    program, _ = rewritten(
        captured(module, torch.randn(2, 6), dynamic={0: torch.export.Dim("b", min=1, max=16)}),
        simplify_layout,
    )
    (reshape,) = [n for n in program.graph.nodes if n.op == "call_function" and "reshape" in str(n.target)]
    assert list(reshape.args[1]) == [-1, 3]
    assert all(error(module, program, torch.randn(b, 6)) == 0.0 for b in (1, 7, 16))


class Position(nn.Module):
    def __init__(self, rows):
        super().__init__()
        self.rows = nn.Parameter(torch.randn(rows, 1, 64))
        self.columns = nn.Parameter(torch.randn(1, rows, 64))

    def forward(self, x):
        return x + (self.rows.sin() + self.columns.cos())


def test_fold_constants_stores_a_small_position_encoding():
    module, x = Position(8), torch.randn(8, 8, 64)
    program, changes = rewritten(captured(module, x), fold_constants)
    assert changes == 1 and operators(program) == {"add": 1}
    assert error(module, program, x) == 0.0


def test_fold_constants_does_not_store_an_expanded_one():
    module, x = Position(256), torch.randn(256, 256, 64)
    program, changes = rewritten(captured(module, x), fold_constants)
    stored = sum(t.numel() for t in program.state_dict.values())
    assert changes == 2 and operators(program)["add"] == 2, "sin and cos are folded, the sum of 16 MB is not"
    assert stored == 2 * 256 * 64
    assert error(module, program, x) < 1e-6


def test_fold_constants_leaves_mutated_buffers_and_inputs_alone():
    class Counter(nn.Module):
        def __init__(self):
            super().__init__()
            self.count = nn.Buffer(torch.zeros(3))

        def forward(self, x):
            self.count.add_(1.0)
            return x + self.count.sin()

    _, changes = rewritten(captured(Counter(), torch.randn(3)), fold_constants)
    assert changes == 0
