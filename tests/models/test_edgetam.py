"""EdgeTAM: our encoder says what transformers says; what fails without our configuration is
shown.
"""

import pytest
import torch
from PIL import Image
from skimage import data

from edgeexport.errors import UsageError, WeightsError
from edgeexport.method import Weights
from edgeexport.modeling.promptable_segmentation import IMAGE_SIZE, MEAN, STD, OriginalEncoder
from edgeexport.models import edgetam
from edgeexport.pipelines.media.photos import to_tensor


@pytest.fixture(scope="module")
def loaded():
    return edgetam.load(Weights("random", 3))[0]


def photo(name):
    image = Image.fromarray(getattr(data, name)())
    return to_tensor(image, IMAGE_SIZE, IMAGE_SIZE, MEAN, STD)


def test_the_encoder_is_the_original(loaded):
    with torch.no_grad():
        ours, theirs = edgetam.ImageEncoder(loaded)(photo("coffee")), OriginalEncoder(loaded)(photo("coffee"))
    assert [t.shape for t in ours] == [(1, 256, 64, 64), (1, 32, 256, 256), (1, 64, 128, 128)]
    assert all(torch.allclose(a, b, atol=1e-4) for a, b in zip(ours, theirs))


def test_random_weights_let_the_image_through(loaded):
    """Else a wrong encoder would pass its numerics check: what remains would be biases."""
    with torch.no_grad():
        one, other = (edgetam.ImageEncoder(loaded)(photo(name))[0] for name in ("coffee", "chelsea"))
    assert 0.1 < one.std() < 100
    assert (one - other).std() > 0.05 * one.std()


def test_transformers_own_configuration_names_another_backbone():
    """Why edgetam.config() names it: the default misspells `architecture`, and falls back to a
    ResNet with other widths.
    """
    from transformers import EdgeTamConfig, EdgeTamModel

    default = EdgeTamConfig()
    assert default.vision_config.backbone_config.architecture == "resnet50"
    model = EdgeTamModel(default).eval()
    with torch.no_grad(), pytest.raises(RuntimeError, match="expected input.* to have 384 channels"):
        model.get_image_embeddings(torch.zeros(1, 3, 1024, 1024))
    assert edgetam.config().vision_config.backbone_config.architecture == "repvit_m1"


def test_without_timm_the_extra_is_named(monkeypatch):
    find = edgetam.importlib.util.find_spec
    monkeypatch.setattr(
        edgetam.importlib.util, "find_spec", lambda name, *rest: None if name == "timm" else find(name, *rest)
    )
    with pytest.raises(UsageError, match=r"pip install 'edgeexport\[edgetam\]'"):
        edgetam.load(Weights("random"))


def test_pretrained_weights_offline_and_a_checkpoint_with_video_memory(tmp_path, monkeypatch, loaded):
    from safetensors.torch import save_file

    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(WeightsError, match="yonigozlan/EdgeTAM-hf cannot be had.*--weights random"):
        edgetam.load(Weights())
    state = {k: v.clone() for k, v in loaded.state_dict().items()}
    save_file(
        state | {"memory_attention.x": torch.zeros(1), "spatial_perceiver.y": torch.zeros(1)},
        tmp_path / "edgetam.safetensors",
    )
    again, weights = edgetam.load(Weights("checkpoint", path=str(tmp_path / "edgetam.safetensors")))
    assert weights.sha256 and all(torch.equal(v, state[k]) for k, v in again.state_dict().items())
    save_file({k: v for k, v in state.items() if "backbone" not in k}, tmp_path / "half.safetensors")
    with pytest.raises(WeightsError, match="another model or variant.*missing"):
        edgetam.load(Weights("checkpoint", path=str(tmp_path / "half.safetensors")))
