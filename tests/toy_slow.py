"""A user's own model in a file, one line of which takes most of the time, and one operator of which
no delegate has.
"""

import torch
from torch import nn

from edgeexport.method import Dim, Input, Method, Model, Output, Source, Tolerance
from edgeexport.modeling.weights import load_module
from edgeexport.samplers import Uniform


class Slow(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(512, 512)
        self.wide = nn.Linear(512, 2048)
        self.narrow = nn.Linear(2048, 8)

    def forward(self, x):
        x = x + self.first(x[:, :1])
        x = x.flip(1)  # outside
        y = torch.relu(self.wide(x))  # slow
        y = torch.cat((y, y[:, :1]), 1)
        return self.narrow(y).mean(1)


def load(weights):
    def offline():
        raise OSError("no network")

    return load_module(weights, Slow, offline, "slow")


def methods(module, dims):
    x = Input("x", ("batch", 64, 512), range=(-1, 1), sample=Uniform(-1, 1))
    return (Method("classify", module, (x,), (Output("logits"),), (dims["batch"],)),)


MODEL = Model(
    name="slow",
    summary="a toy with a slow line",
    source=Source("tests", "1", "Apache-2.0"),
    load=load,
    methods=methods,
    dims=(Dim("batch", 1, 3),),
    tolerances={"fp32": Tolerance(1e-5, 90.0, "float32 sums in another order")},
)
