"""Calling a program: what the runtime would accept and answer wrongly is refused before it."""

import pytest
import torch
from toy import Toy

import edgeexport
from edgeexport.errors import InputError, UnknownName, UsageError
from edgeexport.modeling.weights import randomize


@pytest.fixture(scope="module")
def program(toy_artifact):
    return edgeexport.open(toy_artifact.path)


@pytest.mark.parametrize("batch", [1, 2, 15, 16, 17])
def test_it_says_what_eager_says(program, batch):
    module = Toy().eval()
    randomize(module, 0)
    x = torch.randn(batch, 3, 16, 16)
    (answer,) = program["classify"](x)
    assert torch.allclose(answer, module(x), atol=1e-4)


def test_a_channels_last_tensor_is_refused_and_the_runtime_would_be_wrong(program):
    module = Toy().eval()
    randomize(module, 0)
    image = torch.randn(2, 16, 16, 3).permute(0, 3, 1, 2)
    with pytest.raises(InputError, match="contiguous.*HWC"):
        program["classify"](image)
    (wrong,) = program["classify"].execute([image])
    assert not torch.allclose(wrong, module(image), atol=1e-2), (
        "the runtime checks the layout now? then say so in the docs"
    )


@pytest.mark.parametrize(
    ("tensors", "said"),
    [
        ((), "takes 1 tensors"),
        ((torch.randn(1, 3, 16, 16), 1), "takes 1 tensors"),
        (("x",), "torch.Tensor, not str"),
        ((torch.randn(1, 3, 16, 16).double(),), "must be float32, not float64"),
        ((torch.randn(3, 16, 16),), "must have 4 dimensions"),
        ((torch.randn(1, 3, 16, 17),), "size 16 in dimension 3, not 17"),
        ((torch.randn(18, 3, 16, 16),), "batch = 18.*takes 1 to 17"),
        ((torch.randn(0, 3, 16, 16),), "batch = 0"),
    ],
)
def test_wrong_tensors_are_refused(program, tensors, said):
    with pytest.raises(InputError, match=said):
        program["classify"](*tensors)


def test_unknown_methods_and_late_thread_counts_are_refused(program, toy_artifact):
    with pytest.raises(UnknownName, match="Did you mean 'classify'"):
        program["clasify"]
    program["classify"].load()
    with pytest.raises(UsageError, match="new process"):
        edgeexport.open(toy_artifact.path, threads=1)
    with pytest.raises(UsageError, match="at least 1"):
        edgeexport.open(toy_artifact.path, threads=0)
