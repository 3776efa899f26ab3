"""BLIP's parts against transformers' own, in a small configuration."""

import pytest
import torch

from edgeexport.method import Dim
from edgeexport.modeling.weights import randomize
from edgeexport.models import blip


@pytest.fixture(scope="module")
def small():
    from edgeexport.modeling.torchvision_operators import ensure_torchvision

    ensure_torchvision()
    from transformers import BlipConfig, BlipForConditionalGeneration

    size = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2}
    settings = BlipConfig(
        text_config=size | {"vocab_size": 500, "bos_token_id": 1, "sep_token_id": 2},
        vision_config=size | {"image_size": 32, "patch_size": 8},
    )
    loaded = BlipForConditionalGeneration(settings)
    randomize(loaded, 0)
    return loaded.eval().requires_grad_(False)


def test_prompt_and_steps_say_what_transformers_says_to_the_whole_text(small):
    methods = {m.name: m for m in blip.methods(small, {"batch": Dim("batch", 1, 1)})}
    pixels = torch.randn(1, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    image = methods["encode_image"].answer(pixels)
    assert [tuple(t.shape) for t in image] == [(2, 17, 16)] * 2 + [(2, 16, 17)] * 2
    seen = small.vision_model(pixels).last_hidden_state
    text = [1, 11, 222, 333, 44]
    wanted = small.text_decoder(torch.tensor([text]), encoder_hidden_states=seen, use_cache=False).logits[0]
    for method in (methods["prefill"].module, methods["prefill"].reference):
        prompt = method(torch.tensor([text[:3]]), torch.tensor([0]), *image)
        steps = [method(torch.tensor([[text[place]]]), torch.tensor([place]), *image)[0] for place in (3, 4)]
        torch.testing.assert_close(torch.stack([prompt[0], *steps]), wanted[2:], atol=1e-4, rtol=1e-4)


def test_checkpoints_without_the_tied_head_or_with_old_buffers_fit(small):
    state = dict(small.state_dict())
    old = {k: v for k, v in state.items() if ".predictions.decoder." not in k} | {
        "text_decoder.bert.embeddings.position_ids": torch.arange(3)
    }
    assert set(blip.with_head(old)) == set(state)
    assert torch.equal(
        blip.with_head(old)["text_decoder.cls.predictions.decoder.weight"],
        state["text_decoder.bert.embeddings.word_embeddings.weight"],
    )


def test_released_models_have_twelve_text_heads():
    """transformers' default is 8, which loads the same checkpoint and says something else."""
    assert blip.config("blip-captioning-base").text_config.num_attention_heads == 12
    large = blip.config("blip-captioning-large")
    assert large.vision_config.num_hidden_layers == 24 and large.text_config.encoder_hidden_size == 1024
