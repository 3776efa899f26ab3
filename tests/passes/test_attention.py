"""decompose_attention, matmul_as_bmm, split_linear, decompose_layer_norm."""

import pytest
import torch
import torch.nn.functional as F
from programs import captured, error, operators, rewritten
from torch import nn

from edgeexport.compiler.passes.decompose_attention import decompose_attention
from edgeexport.compiler.passes.decompose_layer_norm import decompose_layer_norm
from edgeexport.compiler.passes.matmul_as_bmm import matmul_as_bmm
from edgeexport.compiler.passes.simplify_layout import simplify_layout
from edgeexport.compiler.passes.split_linear import split_linear

BATCH = {0: torch.export.Dim("b", min=1, max=16)}


class Attention(nn.Module):
    def __init__(self, **options):
        super().__init__()
        self.options = options

    def forward(self, q):
        return F.scaled_dot_product_attention(q, q * 0.5, q + 1.0, **self.options)


def test_attention_becomes_bmm_softmax_bmm_at_every_batch():
    module = Attention(scale=0.3)
    program, changes = rewritten(
        captured(module, torch.randn(2, 4, 10, 8), dynamic=BATCH), decompose_attention
    )
    found = operators(program)
    assert (
        changes == 1
        and found["bmm"] == 2
        and found["softmax"] == 1
        and "scaled_dot_product_attention" not in found
    )
    assert max(error(module, program, torch.randn(b, 4, 10, 8)) for b in (1, 2, 7, 16)) < 1e-5


def test_long_queries_are_taken_in_chunks():
    module, x = Attention(), torch.randn(1, 1, 4096, 8)
    program, _ = rewritten(captured(module, x), decompose_attention)
    assert operators(program)["bmm"] == 4 and operators(program)["cat"] == 1
    assert error(module, program, x) < 1e-5


@pytest.mark.parametrize(
    "options", [{"is_causal": True}, {"attn_mask": torch.zeros(10, 10)}, {"dropout_p": 0.1}]
)
def test_masked_causal_and_dropout_attention_are_left_alone(options):
    _, changes = rewritten(captured(Attention(**options), torch.randn(2, 4, 10, 8)), decompose_attention)
    assert changes == 0


class Product(nn.Module):
    def forward(self, a, b):
        return a @ b


def test_matmul_of_rank_four_becomes_bmm_and_broadcast_does_not():
    module, a, b = Product(), torch.randn(2, 3, 5, 6), torch.randn(2, 3, 6, 7)
    program, changes = rewritten(captured(module, a, b), matmul_as_bmm)
    assert changes == 1 and operators(program)["bmm"] == 1
    assert error(module, program, a, b) < 1e-5
    assert rewritten(captured(module, a, torch.randn(6, 7)), matmul_as_bmm)[1] == 0
    assert rewritten(captured(module, a, torch.randn(1, 3, 6, 7)), matmul_as_bmm)[1] == 0


class Fused(nn.Module):
    def __init__(self, select=False, shared=False):
        super().__init__()
        self.qkv = nn.Linear(8, 24)
        self.select, self.shared = select, shared

    def forward(self, x):
        fused = self.qkv(x)
        parts = fused.reshape(x.shape[0], x.shape[1], 3, 2, 4).permute(2, 0, 3, 1, 4)
        q, k, v = (parts[0], parts[1], parts[2]) if self.select else parts.unbind(0)
        out = q + k * v
        return (out, fused) if self.shared else out


@pytest.mark.parametrize("select", [False, True])
def test_fused_linear_is_split(select):
    module = Fused(select)
    program, changes = rewritten(
        captured(module, torch.randn(2, 5, 8), dynamic=BATCH), simplify_layout, split_linear
    )
    assert changes == 3 and operators(program)["linear"] == 3 and "unbind" not in operators(program)
    assert max(error(module, program, torch.randn(b, 5, 8)) for b in (1, 3, 16)) < 1e-5
    assert sum(t.numel() for t in program.state_dict.values()) == 24 * 8 + 24, "the fused weight is gone"


def test_fused_linear_with_another_user_is_left_alone():
    _, changes = rewritten(captured(Fused(shared=True), torch.randn(2, 5, 8)), simplify_layout, split_linear)
    assert changes == 0


class Normed(nn.Module):
    def __init__(self, two_dims=False, linear=True):
        super().__init__()
        self.norm = nn.LayerNorm((5, 8) if two_dims else 8)
        self.linear = nn.Linear(8, 6) if linear else nn.Identity()
        with torch.no_grad():
            for p in self.parameters():
                p.add_(torch.randn(p.shape))

    def forward(self, x):
        return self.linear(self.norm(x))


@pytest.mark.parametrize("linear", [True, False])
def test_layer_norm_is_decomposed(linear):
    module = Normed(linear=linear)
    program, changes = rewritten(captured(module, torch.randn(2, 5, 8), dynamic=BATCH), decompose_layer_norm)
    found = operators(program)
    assert changes == 1 and "layer_norm" not in found
    assert found["mul"] == (2 if linear else 3), "the gain goes into a linear that follows"
    assert max(error(module, program, 3 + torch.randn(b, 5, 8)) for b in (1, 3, 16)) < 1e-4


def test_layer_norm_over_two_dimensions_is_left_alone():
    assert rewritten(captured(Normed(two_dims=True), torch.randn(2, 5, 8)), decompose_layer_norm)[1] == 0
