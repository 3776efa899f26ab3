"""The memory forecast: what lives when, at the greatest sizes."""

from torch import nn

from edgeexport.artifact.targets import target
from edgeexport.compiler.capture import capture
from edgeexport.compiler.memory_forecast import forecast
from edgeexport.method import Dim, Input, Method, Output


class Chain(nn.Module):
    """x → two tensors as large → one: three are alive while the sum is made, views take nothing."""

    def __init__(self):
        super().__init__()
        self.line = nn.Linear(8, 8)

    def forward(self, x):
        left, right = self.line(x).relu(), x.sigmoid()
        return (left + right).view(-1).unsqueeze(0)


def of(dim):
    method = Method("forward", Chain(), (Input("x", ("batch", 8)),), (Output("y"),), (dim,))
    return forecast(capture(method).program)


def test_weights_and_the_most_that_is_alive():
    found = of(Dim("batch", 4, 4))
    row = 4 * 8 * 4
    assert found.weight_bytes == (8 * 8 + 8) * 4
    assert found.live_bytes == 4 * row, "x, left, right and their sum"
    assert found.on(target("xnnpack")).peak_bytes == 2 * found.weight_bytes + found.live_bytes


def test_a_dynamic_size_counts_at_its_upper_bound():
    assert of(Dim("batch", 1, 100)).live_bytes == 25 * of(Dim("batch", 4, 4)).live_bytes
