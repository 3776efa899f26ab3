"""A weight that is a constant and a delegate's weight is stored once, and nothing else changes."""

import torch
from torch import nn

from edgeexport.compiler.recipes.xnnpack import recipe
from edgeexport.compiler.rewrite import run_passes
from edgeexport.compiler.shared_weights import share_segments


class Tied(nn.Module):
    def __init__(self, tied):
        super().__init__()
        self.words = nn.Embedding(3000, 24)
        self.head = nn.Linear(24, 3000, bias=False)
        self.norm = nn.LayerNorm(24)
        nn.init.normal_(self.norm.weight)
        if tied:
            self.head.weight = self.words.weight

    def forward(self, tokens):
        return self.head(self.norm(self.words(tokens).mean(1)))


def written(path, tied, monkeypatch, linked):
    """The module, and its program in `path`, with the link step or without."""
    from edgeexport.compiler import edge_lowering

    module = Tied(tied).eval()
    with torch.no_grad():
        program = torch.export.export(module, (torch.tensor([[1, 2, 3]]),)).run_decompositions({})
    chosen = recipe("fp32")
    program, _ = run_passes(program, chosen.passes)
    with monkeypatch.context() as patch:
        if not linked:
            patch.setattr(edge_lowering, "share_segments", lambda path: 0)
        chosen.emit({"forward": program}, path)
    return module


def answer(path):
    from executorch.runtime import Runtime

    program = Runtime.get().load_program(path)
    return program.load_method("forward").execute([torch.tensor([[7, 2999, 0]])])[0].clone()


def test_a_tied_embedding_is_stored_once_and_the_answer_has_the_same_bits(tmp_path, monkeypatch):
    path = tmp_path / "tied.pte"
    module = written(path, True, monkeypatch, linked=False)
    before, size = answer(path), path.stat().st_size
    weight = 3000 * 24 * 4
    assert size > 2 * weight
    saved = share_segments(path)
    assert abs(saved - weight) < 4096 and path.stat().st_size == size - saved < 1.2 * weight
    assert torch.equal(answer(path), before)
    with torch.no_grad():
        torch.testing.assert_close(before, module(torch.tensor([[7, 2999, 0]])), atol=1e-5, rtol=0)
    assert share_segments(path) == 0


def test_the_recipe_does_it(tmp_path, monkeypatch):
    written(tmp_path / "tied.pte", True, monkeypatch, linked=True)
    assert (tmp_path / "tied.pte").stat().st_size < 1.2 * 3000 * 24 * 4


def test_weights_that_differ_are_left_alone(tmp_path, monkeypatch):
    path = tmp_path / "untied.pte"
    written(path, False, monkeypatch, linked=False)
    before = path.read_bytes()
    assert share_segments(path) == 0 and path.read_bytes() == before
