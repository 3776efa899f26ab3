"""Captured programs in a file: weights once for all of them, in PyTorch's own format."""

import pytest
import torch
from programs import captured
from torch import nn

from edgeexport.artifact.exported_programs import load_programs, save_programs
from edgeexport.errors import ArtifactError


class Part(nn.Module):
    """A method over a shared table, with a state and a constant of its own."""

    def __init__(self, table, factor):
        super().__init__()
        self.table, self.count, self.factor = table, nn.Buffer(torch.zeros(1)), factor

    def forward(self, x):
        self.count.add_(1.0)
        return self.table(x) * torch.tensor([self.factor]) + self.count


def test_programs_come_back_as_they_were_and_share_their_weights(tmp_path):
    table, x = nn.Linear(256, 256), torch.randn(2, 256)
    parts = {name: Part(table, factor) for name, factor in (("one", 1.0), ("two", 2.0), ("three", 3.0))}
    dynamic = {0: torch.export.Dim("batch", min=1, max=9)}
    save_programs(
        {name: captured(part, x, dynamic=dynamic) for name, part in parts.items()}, tmp_path / "programs.pt2"
    )
    assert (tmp_path / "programs.pt2").stat().st_size < 1.5 * 4 * 256 * 256, "the table is there once"
    found = load_programs(tmp_path / "programs.pt2")
    assert list(found) == ["one", "two", "three"]
    for name, program in found.items():
        y = torch.randn(9, 256)
        assert torch.equal(program.module()(y), parts[name](y)), (
            "weights, state, constants and the dynamic size"
        )
        assert any("self.table(x)" in (n.meta.get("stack_trace") or "") for n in program.graph.nodes), (
            "lines of the source"
        )


def test_plain_torch_reads_it(tmp_path):
    from torch.export.pt2_archive._package import load_pt2

    module = nn.Linear(4, 2)
    save_programs({"f": captured(module, torch.ones(1, 4))}, tmp_path / "programs.pt2")
    program = load_pt2(str(tmp_path / "programs.pt2")).exported_programs["f"]
    torch.testing.assert_close(program.module()(torch.ones(1, 4)), module(torch.ones(1, 4)))


def test_a_damaged_file_is_an_error_with_its_name(tmp_path):
    (tmp_path / "programs.pt2").write_bytes(b"PK\x03\x04 nothing")
    with pytest.raises(ArtifactError, match=r"programs.pt2 holds no ExportedPrograms"):
        load_programs(tmp_path / "programs.pt2")
