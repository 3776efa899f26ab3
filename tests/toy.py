"""A user's own model in a file: a small convolution and transformer with a dynamic batch."""

import torch
from torch import nn

from edgeexport.method import Dim, Input, Method, Model, Output, Source, Tolerance
from edgeexport.modeling.weights import load_module, randomize
from edgeexport.samplers import Photo


class Toy(nn.Module):
    def __init__(self):
        super().__init__()
        self.patch = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 16, 4, stride=4))
        self.norm = nn.LayerNorm(16)
        self.qkv = nn.Linear(16, 48)
        self.head = nn.Linear(16, 8)

    def forward(self, image):
        x = self.patch(image).flatten(2).transpose(1, 2)
        batch, count, width = x.shape
        qkv = self.qkv(self.norm(x)).reshape(batch, count, 3, 2, width // 2).permute(2, 0, 3, 1, 4)
        y = nn.functional.scaled_dot_product_attention(*qkv.unbind(0))
        x = x + y.transpose(1, 2).reshape(batch, count, width)
        return self.head(x.mean(1))


def offline():
    raise OSError("no network")


def load(weights):
    return load_module(weights, Toy, offline, "toy")


def methods(module, dims):
    image = Input("image", ("batch", 3, 16, 16), meaning="a small image", range=(-3, 3), sample=Photo())
    return (Method("classify", module, (image,), (Output("logits", "eight classes"),), (dims["batch"],)),)


MODEL = Model(
    name="toy",
    summary="a toy",
    source=Source("tests", "1", "Apache-2.0"),
    load=load,
    methods=methods,
    dims=(Dim("batch", 1, 17),),
    tolerances={"fp32": Tolerance(1e-5, 90.0, "float32 sums in another order")},
)


def impossible():
    """The same with a memory limit that nothing meets: a build whose check fails."""
    from dataclasses import replace

    def limited(module, dims):
        return tuple(replace(m, planned_limit_bytes=1) for m in methods(module, dims))

    return replace(MODEL, methods=limited)


def wrong():
    """Captured with another module than the reference: the numbers differ."""
    from dataclasses import replace

    def swapped(module, dims):
        (method,) = methods(module, dims)
        other = Toy().eval()
        randomize(other, 99)
        return (replace(method, module=other, reference=module),)

    return replace(MODEL, methods=swapped)


def batchless():
    """No dynamic dimension at all."""
    from dataclasses import replace

    def fixed(module, dims):
        image = Input("image", (2, 3, 16, 16), sample=Photo())
        return (Method("classify", module, (image,), (Output("logits"),)),)

    return replace(MODEL, methods=fixed, dims=())


class Positive(nn.Module):
    def forward(self, image):
        return image.relu() * 2


def weightless():
    """A module without weights."""
    from dataclasses import replace

    def load(weights):
        return load_module(weights, Positive, offline, "toy")

    return replace(MODEL, load=load)


def interrupted():
    """Ctrl-C in the middle of a build."""
    from dataclasses import replace

    def stop(module, dims):
        raise KeyboardInterrupt

    return replace(MODEL, methods=stop)


def full_disk():
    """The disk fills up in the middle of a build."""
    import errno
    from dataclasses import replace

    def fill(module, dims):
        raise OSError(errno.ENOSPC, "No space left on device")

    return replace(MODEL, methods=fill)


NOT_A_MODEL = torch.zeros(1)
