"""Whisper's parts against transformers' own, in a small configuration; what is loaded and what is
refused.
"""

import pytest
import torch
from safetensors.torch import save_file

from edgeexport.errors import WeightsError
from edgeexport.method import Dim, Weights
from edgeexport.modeling.weights import randomize
from edgeexport.models import whisper
from edgeexport.samplers import Chirp


@pytest.fixture(scope="module")
def small():
    """Two layers of width 32, two heads; positions and vocabulary as released."""
    settings = whisper.config("whisper-tiny.en")
    for name, value in {
        "d_model": 32,
        "encoder_layers": 2,
        "decoder_layers": 2,
        "encoder_attention_heads": 2,
        "decoder_attention_heads": 2,
        "encoder_ffn_dim": 64,
        "decoder_ffn_dim": 64,
    }.items():
        setattr(settings, name, value)
    from transformers import WhisperForConditionalGeneration

    loaded = WhisperForConditionalGeneration(settings)
    randomize(loaded, 0)
    return loaded.eval().requires_grad_(False)


@pytest.mark.parametrize("samples", [1, 159, 400, 16_000, 479_999, 480_000])
def test_features_are_those_of_transformers(samples):
    sound = Chirp().draw((samples,), torch.float32, 3, {}, {})
    found, wanted = whisper.LogMel()(sound), whisper.original_features(sound)
    assert found.shape == (1, 80, 3000)
    torch.testing.assert_close(found, wanted, atol=1e-4, rtol=0)


def test_silence_has_features(small):
    torch.testing.assert_close(
        whisper.LogMel()(torch.zeros(5)), whisper.original_features(torch.zeros(5)), atol=1e-5, rtol=0
    )


def test_prompt_and_steps_say_what_transformers_says_to_the_whole_text(small):
    methods = {m.name: m for m in whisper.methods(small, {"batch": Dim("batch", 1, 1)})}
    sound = methods["encode"].answer(torch.randn(1, 80, 3000, generator=torch.Generator().manual_seed(0)))
    encoded = small.model.encoder(
        torch.randn(1, 80, 3000, generator=torch.Generator().manual_seed(0))
    ).last_hidden_state
    text = [50257, 11, 222, 3333, 44444]
    wanted = small(
        encoder_outputs=(encoded,), decoder_input_ids=torch.tensor([text]), use_cache=False
    ).logits[0]
    for method in (methods["prefill"].module, methods["prefill"].reference):
        prompt = method(torch.tensor([text[:3]]), torch.tensor([0]), *sound)
        steps = [method(torch.tensor([[text[place]]]), torch.tensor([place]), *sound)[0] for place in (3, 4)]
        torch.testing.assert_close(torch.stack([prompt[0], *steps]), wanted[2:], atol=1e-4, rtol=1e-4)


def test_a_released_checkpoint_without_its_tied_head_is_taken_and_another_variant_refused(tmp_path):
    loaded, weights = whisper.load("whisper-tiny.en", Weights("random", 3))
    state = {k: v.clone() for k, v in loaded.state_dict().items() if k != "proj_out.weight"}
    save_file(state, tmp_path / "model.safetensors")
    again, found = whisper.load(
        "whisper-tiny.en", Weights("checkpoint", path=str(tmp_path / "model.safetensors"))
    )
    assert torch.equal(again.proj_out.weight, loaded.proj_out.weight) and len(found.sha256) == 64
    with pytest.raises(WeightsError, match="another model or variant.*embed_tokens.weight has shape"):
        whisper.load("whisper-tiny", Weights("checkpoint", path=str(tmp_path / "model.safetensors")))


def test_the_tokenizer_beside_a_checkpoint_goes_along(tmp_path):
    assets = whisper.model("whisper-tiny.en").assets
    checkpoint = Weights("checkpoint", path=str(tmp_path / "model.safetensors"))
    assert assets(checkpoint) == {} and assets(Weights("random")) == {}
    (tmp_path / "tokenizer.json").write_bytes(b"{}")
    assert assets(checkpoint) == {"tokenizer.json": b"{}"}
