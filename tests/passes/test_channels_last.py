"""Convolutions of server programs in channels_last."""

import torch
from programs import captured, error, operators, rewritten
from torch import nn

from edgeexport.compiler.passes.channels_last import channels_last


class Joined(nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.two, self.last = (
            nn.Conv2d(3, 8, 3, padding=1),
            nn.Conv2d(3, 8, 1),
            nn.Conv2d(16, 4, 3, stride=2),
        )

    def forward(self, x):
        return self.last(torch.cat([self.one(x), self.two(x)], dim=1))


def weights(program):
    return {name: t for name, t in program.state_dict.items() if t.dim() == 4}


def test_weights_and_concatenated_channels():
    x = torch.randn(3, 3, 9, 9)
    program, changes = rewritten(
        captured(Joined(), x, dynamic={0: torch.export.Dim("batch", min=1, max=9)}), channels_last
    )
    assert changes == 3 and operators(program)["permute"] == 3, (
        "one weight is in both formats as it is: it has one pixel"
    )
    assert all(w.is_contiguous(memory_format=torch.channels_last) for w in weights(program).values())
    module = Joined()
    module.load_state_dict({k: v.contiguous() for k, v in program.state_dict.items()})
    assert error(module, program, x) < 1e-5
    assert error(module, program, torch.randn(9, 3, 9, 9)) < 1e-5, "still dynamic"


def test_methods_share_the_weight_in_its_new_format_too():
    module = nn.Conv2d(3, 8, 3)
    one, two = (rewritten(captured(module, torch.randn(1, 3, s, s)), channels_last)[0] for s in (8, 16))
    assert (
        one.state_dict["weight"].data_ptr() == two.state_dict["weight"].data_ptr() != module.weight.data_ptr()
    )
    assert module.weight.is_contiguous(), "the phone's program has it as it was"


def test_other_convolutions_and_concatenations_are_left_alone():
    class Other(nn.Module):
        def __init__(self):
            super().__init__()
            self.line, self.volume = nn.Conv1d(3, 4, 3), nn.Conv3d(3, 4, 3)
            self.flat = nn.Conv2d(3, 4, 3)
            self.flat.weight.data = self.flat.weight.data.contiguous(memory_format=torch.channels_last)

        def forward(self, line, volume, image):
            image = self.flat(torch.cat([image, image], dim=2))
            return self.line(line), self.volume(volume), torch.cat([image, image], dim=1)

    inputs = torch.randn(1, 3, 9), torch.randn(1, 3, 5, 5, 5), torch.randn(1, 3, 5, 5)
    program, changes = rewritten(captured(Other(), *inputs), channels_last)
    assert changes == 0 and operators(program)["cat"] == 2
