"""A program without its weights, and the file that they are in: the same answers to the last bit,
and only what is worth a name is moved.
"""

import pytest
import torch
from test_link import Tied
from torch import nn

from edgeexport.artifact.detached_weights import take_weights
from edgeexport.artifact.pte_segments import ProgramFile, read_data_file, write_data_file
from edgeexport.compiler.recipes.xnnpack import recipe
from edgeexport.compiler.rewrite import run_passes

WORDS = torch.tensor([[7, 2999, 0]])


class Counter(nn.Module):
    """State, a small constant, and no weight of a delegate."""

    def __init__(self, first=0.0):
        super().__init__()
        self.register_buffer("total", torch.full((1500,), first))
        self.register_buffer("table", torch.arange(8))

    def forward(self, index):
        self.total += 1.0
        return self.total[:4] + 0.0, self.table[index]


def lowered(path, module, *inputs):
    with torch.no_grad():
        program = torch.export.export(module.eval(), inputs).run_decompositions({})
    chosen = recipe("fp32")
    program, _ = run_passes(program, chosen.passes)
    chosen.emit({"forward": program}, path)
    return path


def answers(path, *inputs, calls=1, **options):
    from executorch.runtime import Runtime

    method = Runtime.get().load_program(path, **options).load_method("forward")
    return [[tensor.clone() for tensor in method.execute(list(inputs))] for _ in range(calls)]


def equal(ours, theirs):
    return all(
        torch.equal(a, b)
        for one, other in zip(ours, theirs, strict=True)
        for a, b in zip(one, other, strict=True)
    )


@pytest.mark.parametrize("tied", [True, False])
def test_weights_and_tables_are_moved_and_the_answer_has_the_same_bits(tied, tmp_path):
    whole, small, data = (tmp_path / name for name in ("whole.pte", "small.pte", "weights.ptd"))
    file = ProgramFile.read(lowered(whole, Tied(tied), WORDS))
    weights = take_weights(file)
    file.write(small)
    write_data_file(data, weights)
    table_bytes = 3000 * 24 * 4
    assert small.stat().st_size < 20_000, "what is left is the program"
    assert data.stat().st_size < (1.1 if tied else 2.1) * table_bytes, (
        "bytes that have two names are there once"
    )
    assert sum(weight.layout is not None for weight in weights.values()) == 1, (
        "the lookup's table is the program's own"
    )
    assert sorted(map(len, read_data_file(data))) == sorted(
        {w.sha256: len(w.content) for w in weights.values()}.values()
    )
    assert equal(answers(small, WORDS, data_path=data), answers(whole, WORDS))


def test_small_constants_and_state_stay(tmp_path):
    whole, small, index = tmp_path / "whole.pte", tmp_path / "small.pte", torch.tensor([5])
    file = ProgramFile.read(lowered(whole, Counter(), index))
    assert take_weights(file) == {}
    file.write(small)
    found = answers(small, index, calls=2)
    assert equal(found, answers(whole, index, calls=2))
    assert [float(total[0]) for total, _ in found] == [1.0, 2.0] and int(found[0][1]) == 5


def test_the_first_value_of_state_is_zero_whatever_it_was(tmp_path):
    """As ExecuTorch writes it (docs/traps.md): were it kept one day, the row there could go."""
    index = torch.tensor([5])
    ((total, _),) = answers(lowered(tmp_path / "whole.pte", Counter(3.0), index), index)
    assert float(total[0]) == 1.0


def test_without_its_data_the_runtime_refuses_the_program(tmp_path):
    file = ProgramFile.read(lowered(tmp_path / "whole.pte", Tied(False), WORDS))
    take_weights(file)
    file.write(tmp_path / "small.pte")
    with pytest.raises(RuntimeError):
        answers(tmp_path / "small.pte", WORDS)


def test_what_is_not_taken_is_written_as_it_was(tmp_path):
    whole, again = lowered(tmp_path / "whole.pte", Tied(False), WORDS), tmp_path / "again.pte"
    ProgramFile.read(whole).write(again)
    assert (
        equal(answers(again, WORDS), answers(whole, WORDS)) and again.stat().st_size == whole.stat().st_size
    )
