"""What the models of SAM 2's kind share says what transformers says, for each of them."""

import pytest
import torch

from edgeexport.method import Weights
from edgeexport.modeling.promptable_segmentation import MaskDecoder, OriginalDecoder
from edgeexport.models import edgetam, sam2

LOADERS = {"sam2-tiny": lambda weights: sam2.load("sam2-tiny", weights), "edgetam": edgetam.load}


@pytest.fixture(scope="module", params=LOADERS)
def loaded(request):
    return LOADERS[request.param](Weights("random", 3))[0]


@pytest.fixture(scope="module")
def features():
    generator = torch.Generator().manual_seed(1)
    return [torch.randn(1, *s, generator=generator) for s in ((256, 64, 64), (32, 256, 256), (64, 128, 128))]


def test_points_are_embedded_as_transformers_does(loaded):
    points, labels = (
        torch.rand(2, 9, 2) * 1024,
        torch.tensor([[-1, 0, 1, 2, 3, 1, 1, 0, 2]] * 2, dtype=torch.int32),
    )
    ours = MaskDecoder(loaded).embed_points(points, labels)
    theirs = loaded.prompt_encoder._embed_points(points.unsqueeze(1), labels.unsqueeze(1), pad=True).squeeze(
        1
    )
    assert torch.allclose(ours, theirs, atol=1e-4)


@pytest.mark.parametrize("has_mask", [0.0, 1.0])
def test_the_decoder_is_the_original(loaded, features, has_mask):
    inputs = (
        *features,
        torch.rand(1, 3, 2) * 1024,
        torch.tensor([[1, 0, 2]], dtype=torch.int32),
        torch.randn(1, 1, 256, 256),
        torch.tensor([has_mask]),
    )
    with torch.no_grad():
        ours, theirs = MaskDecoder(loaded)(*inputs), OriginalDecoder(loaded)(*inputs)
    assert [t.shape for t in ours] == [(1, 4, 256, 256), (1, 4), (1, 1)]
    assert all(torch.allclose(a, b, atol=1e-4) for a, b in zip(ours, theirs))
