"""Rewrites that text decoders live on."""

import torch
from programs import captured, error, operators, rewritten
from torch import nn

from edgeexport.compiler.passes.decompose_layer_norm import decompose_layer_norm
from edgeexport.compiler.passes.matmul_as_bmm import matmul_as_bmm
from edgeexport.compiler.passes.simplify_layout import simplify_layout
from edgeexport.compiler.passes.vector_bmm_as_left import vector_bmm_as_left


class Scores(nn.Module):
    def forward(self, query, keys):
        return torch.matmul(query, keys.transpose(-1, -2))


class Direct(nn.Module):
    def forward(self, query, keys):
        return torch.bmm(query, keys)


def test_stored_keys_become_the_left_operand():
    for rank in ((3, 1, 8), (1, 3, 1, 8)):
        inputs = torch.randn(rank), torch.randn(*rank[:-2], 20, 8)
        program, changes = rewritten(
            captured(Scores(), *inputs), simplify_layout, matmul_as_bmm, vector_bmm_as_left, simplify_layout
        )
        bmm = next(n for n in program.graph.nodes if "bmm" in str(n.target))
        assert tuple(bmm.args[0].meta["val"].shape) == (3, 20, 8) and "permute" not in operators(program)
        assert error(Scores(), program, *inputs) < 1e-6


def test_a_vector_product_is_left_alone_where_a_transpose_would_have_to_be_made():
    inputs = torch.randn(3, 1, 8), torch.randn(3, 8, 20)
    assert rewritten(captured(Direct(), *inputs), vector_bmm_as_left)[1] == 0


def test_several_queries_are_left_alone():
    inputs = torch.randn(3, 2, 8), torch.randn(3, 20, 8)
    assert rewritten(captured(Scores(), *inputs), simplify_layout, matmul_as_bmm, vector_bmm_as_left)[1] == 0


def test_a_dynamic_number_of_keys_is_left_alone():
    inputs = torch.randn(3, 1, 8), torch.randn(3, 20, 8)
    with torch.no_grad():
        program = torch.export.export(
            Scores(), inputs, dynamic_shapes=(None, {1: torch.export.Dim("keys", min=2, max=64)})
        ).run_decompositions({})
    assert rewritten(program, simplify_layout, matmul_as_bmm, vector_bmm_as_left)[1] == 0


class TiedHead(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.norm, self.other = nn.Embedding(50, 8), nn.LayerNorm(8), nn.Linear(8, 4)
        nn.init.normal_(self.norm.weight)

    def forward(self, tokens):
        x = self.norm(self.words(tokens))
        return nn.functional.linear(x, self.words.weight)


def test_a_norm_is_not_folded_into_a_tied_weight():
    """Folded, the table would be stored twice: as it is for the lookup, and changed for the
    head.
    """
    module, tokens = TiedHead(), torch.tensor([[1, 2]])
    program, changes = rewritten(captured(module, tokens), decompose_layer_norm)
    assert changes == 1 and sum(tuple(t.shape) == (50, 8) for t in program.state_dict.values()) == 1
    assert error(module, program, tokens) < 1e-5
