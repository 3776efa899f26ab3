"""SAM 2: our wrappers say what transformers says; what fails without them is shown."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from edgeexport.compiler.capture import capture
from edgeexport.errors import CaptureError, WeightsError
from edgeexport.method import Dim, Input, Method, Output, Weights
from edgeexport.modeling import promptable_segmentation
from edgeexport.models import sam2
from edgeexport.pipelines.segmentation import choose
from edgeexport.samplers import Choice, Normal, Uniform


@pytest.fixture(scope="module")
def loaded():
    return sam2.load("sam2-tiny", Weights("random", 3))[0]


@pytest.fixture(scope="module")
def features():
    generator = torch.Generator().manual_seed(1)
    return [torch.randn(1, *s, generator=generator) for s in ((256, 64, 64), (32, 256, 256), (64, 128, 128))]


def test_the_background_position_is_bicubic_interpolation(loaded):
    embedding = loaded.vision_encoder.backbone.pos_embed.detach()
    want = F.interpolate(embedding, size=(64, 64), mode="bicubic").permute(0, 2, 3, 1)
    assert torch.allclose(sam2.BackgroundPosition(embedding, 64)(), want, atol=1e-5)


def test_choosing_a_mask_is_what_transformers_does(features):
    """A model without our hook on it, as released: one mask, and three."""
    from transformers import Sam2Model

    torch.manual_seed(0)
    original = Sam2Model(sam2.config("sam2-tiny")).eval()
    hooked = promptable_segmentation.MaskDecoder(_hooked(original))
    points, labels = torch.tensor([[[300.0, 500.0]]]), torch.ones(1, 1, dtype=torch.int32)
    with torch.no_grad():
        masks, scores, _ = hooked(*features, points, labels, torch.zeros(1, 1, 256, 256), torch.zeros(1))
        del original.mask_decoder.__dict__["_dynamic_multimask_via_stability"]
        embeddings = [features[1], features[2], features[0]]
        for multi in (True, False):
            theirs = original(
                image_embeddings=embeddings,
                input_points=points[None],
                input_labels=labels[None],
                multimask_output=multi,
            )
            ours = masks[0, choose(masks[0], scores[0], multi)]
            index = int(theirs.iou_scores[0, 0].argmax())
            assert torch.allclose(ours, theirs.pred_masks[0, 0, index], atol=1e-3)


def _hooked(original):
    original.mask_decoder._dynamic_multimask_via_stability = lambda masks, scores: (masks, scores)
    return original


class PromptsOnly(nn.Module):
    """As a predictor captures: image features kept on the side."""

    def __init__(self, loaded, features):
        super().__init__()
        self.decoder = promptable_segmentation.MaskDecoder(loaded)
        self.features = features

    def forward(self, points, labels, mask_input, has_mask):
        return self.decoder(*self.features, points, labels, mask_input, has_mask)


def test_features_that_are_not_inputs_are_refused(loaded, features):
    inputs = (
        Input("points", (1, "points", 2), sample=Uniform(0, 1024)),
        Input("labels", (1, "points"), "int32", sample=Choice((0, 1))),
        Input("mask_input", (1, 1, 256, 256), sample=Normal()),
        Input("has_mask", (1,), sample=Choice((0.0, 1.0))),
    )
    outputs = (Output("masks"), Output("iou_scores"), Output("object_score"))
    method = Method("decode", PromptsOnly(loaded, features), inputs, outputs, (Dim("points", 1, 16),))
    with pytest.raises(CaptureError, match="neither a parameter nor a buffer"):
        capture(method)


def test_pretrained_weights_offline_and_another_variants_checkpoint(tmp_path, monkeypatch, loaded):
    from safetensors.torch import save_file

    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(WeightsError, match="facebook/sam2.1-hiera-tiny cannot be had.*--weights random"):
        sam2.load("sam2-tiny", Weights())
    state = loaded.state_dict()
    save_file(
        {k: v.clone() for k, v in state.items()} | {"memory_attention.x": torch.zeros(1)},
        tmp_path / "tiny.safetensors",
    )
    again, weights = sam2.load("sam2-tiny", Weights("checkpoint", path=str(tmp_path / "tiny.safetensors")))
    assert weights.sha256 and all(torch.equal(v, state[k]) for k, v in again.state_dict().items())
    with pytest.raises(WeightsError, match="another model or variant.*missing"):
        sam2.load("sam2-small", Weights("checkpoint", path=str(tmp_path / "tiny.safetensors")))
