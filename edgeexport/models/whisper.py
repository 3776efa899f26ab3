"""Whisper speech recognition: sound to features, features to cross-attention keys and values,
tokens to logits with a cache.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from edgeexport.method import Dim, Input, Method, Model, Output, Quality, Source, Tolerance, Weights
from edgeexport.modeling.text_decoding import (
    TEXT_INT8,
    KeyValueCache,
    OriginalText,
    Positions,
    attend,
    cross_inputs,
    cross_outputs,
    crossed,
    split_heads,
    text_methods,
)
from edgeexport.modeling.weights import load_module, tokenizer_file
from edgeexport.samplers import Chirp, OutputOf

VARIANTS = {
    "whisper-tiny": {
        "summary": "Whisper tiny, speech recognition in 99 languages, 38 M parameters",
        "aliases": ("whisper",),
    },
    "whisper-tiny.en": {"summary": "Whisper tiny, speech recognition in English, 38 M parameters"},
    "whisper-base": {"summary": "Whisper base, speech recognition in 99 languages, 73 M parameters"},
    "whisper-small": {"summary": "Whisper small, speech recognition in 99 languages, 242 M parameters"},
}

SAMPLING_RATE_HZ = 16_000
WINDOW_SAMPLES = 30 * SAMPLING_RATE_HZ
MEL_BINS, FRAMES, AUDIO_POSITIONS = 80, 3000, 1500
TEXT_POSITIONS = 448
_FFT, _HOP = 400, 160
_HALVINGS = 2

_SIZES = {
    "tiny": (384, 4, 6),
    "base": (512, 6, 8),
    "small": (768, 12, 12),
}  # width, layers a side, heads; table 1 of the paper

# In the order of their token ids, which follow <|startoftranscript|>; "yue" came later, with
# another vocabulary.
_LANGUAGES = (
    "en zh de es ru ko fr ja pt tr pl ca nl ar sv it id hi fi vi he uk el ms cs ro da hu ta no th ur hr bg lt"
    " la mi ml cy sk te fa lv bn sr az sl kn et mk br eu is hy ne mn bs kk sq sw gl mr pa si km sn yo so af"
    " oc ka be tg sd gu am yi lo uz fo ht ps tk nn mt sa lb my bo tl mg as tt haw ln ha ba jw su"
).split()


def model(name: str) -> Model:
    """The variant `name` of VARIANTS."""
    return Model(
        name=name,
        summary=VARIANTS[name]["summary"],
        source=Source(f"openai/{name}", "main", "Apache-2.0", "https://arxiv.org/abs/2212.04356"),
        load=lambda weights: load(name, weights),
        methods=methods,
        dims=(Dim("batch", 1, 1),),
        tolerances={
            "fp32": Tolerance(
                5e-4,
                80.0,
                "released weights have outliers: eager itself is 8e-5 from float64 there, the file 1.6e-4"
                " from eager",
            )
        },
        assets=lambda weights: tokenizer_file(weights, f"openai/{name}"),
        pipelines=("speech",),
        precisions={"int8": TEXT_INT8},
        quality={
            "int8": Quality(
                12.0,
                "15 dB was the least of all cases, whose tokens are random, with tiny.en's released weights;"
                " 99 % of the words of speech were float32's",
            )
        },
        prepare=_prepare(name),
    )


def _prepare(name: str) -> dict:
    """What decoding needs beside logits: token ids and rules, as in the generation configurations
    of the released models.
    """
    from transformers.models.whisper.configuration_whisper import NON_SPEECH_TOKENS, NON_SPEECH_TOKENS_MULTI

    multilingual = not name.endswith(".en")
    end = 50257 if multilingual else 50256
    start = end + 1
    translate = start + 1 + len(_LANGUAGES)
    special = {
        "translate": translate,
        "transcribe": translate + 1,
        "start_of_lm": translate + 2,
        "previous": translate + 3,
        "no_speech": translate + 4,
    }
    return {
        "sampling_rate_hz": SAMPLING_RATE_HZ,
        "window_samples": WINDOW_SAMPLES,
        "text_positions": TEXT_POSITIONS,
        "tokenizer": "tokenizer.json",
        "multilingual": multilingual,
        "end": end,
        "start": start,
        **special,
        "no_timestamps": translate + 5,
        "timestamps": translate + 6,
        "seconds_a_timestamp": 0.02,
        "latest_first_timestamp": 50,
        "languages": (
            {code: start + 1 + index for index, code in enumerate(_LANGUAGES)} if multilingual else {}
        ),
        "suppress": [*(NON_SPEECH_TOKENS_MULTI if multilingual else NON_SPEECH_TOKENS)],
        "suppress_first": [220, end],
    }


def config(name: str):
    """The transformers configuration of a variant."""
    from edgeexport.modeling.torchvision_operators import ensure_torchvision

    ensure_torchvision()
    from transformers import WhisperConfig

    width, layers, heads = _SIZES[name.removeprefix("whisper-").removesuffix(".en")]
    facts = _prepare(name)
    return WhisperConfig(
        vocab_size=facts["timestamps"] + 1501,
        d_model=width,
        encoder_layers=layers,
        decoder_layers=layers,
        encoder_attention_heads=heads,
        decoder_attention_heads=heads,
        encoder_ffn_dim=4 * width,
        decoder_ffn_dim=4 * width,
        num_mel_bins=MEL_BINS,
        max_source_positions=AUDIO_POSITIONS,
        max_target_positions=TEXT_POSITIONS,
        pad_token_id=facts["end"],
        bos_token_id=facts["end"],
        eos_token_id=facts["end"],
        decoder_start_token_id=facts["start"],
    )


def load(name: str, weights: Weights) -> tuple[nn.Module, Weights]:
    """The transformers model with the weights asked for. Raises WeightsError."""
    settings = config(name)
    from transformers import WhisperForConditionalGeneration

    repository = f"openai/{name}"
    return load_module(
        weights,
        lambda: WhisperForConditionalGeneration(settings),
        lambda: WhisperForConditionalGeneration.from_pretrained(repository),
        repository,
        _with_head,
    )


def _with_head(tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """With the output head, which released checkpoints leave out: it is the embedding."""
    embedding = "model.decoder.embed_tokens.weight"
    return {"proj_out.weight": tensors[embedding], **tensors} if embedding in tensors else dict(tensors)


def methods(loaded: Any, dims: Mapping[str, Dim]) -> tuple[Method, ...]:
    """log_mel, encode, prefill and decode_step."""
    settings, heads = loaded.config, loaded.config.decoder_attention_heads
    sound = Input(
        "waveform",
        ("samples",),
        meaning="mono sound, 16 kHz, up to 30 s",
        unit="full scale",
        range=(-1.0, 1.0),
        sample=Chirp(),
    )
    mel = Output(
        "features", "log-mel spectrogram [1, 80, 3000] of the sound, with silence after it up to 30 s"
    )
    features = Input(
        "features",
        ("batch", MEL_BINS, FRAMES),
        meaning="log-mel spectrogram of 30 s, from log_mel",
        range=(-2.0, 2.0),
        sample=OutputOf("log_mel", "features", "last"),
    )
    layers = settings.decoder_layers
    about = cross_inputs(layers, "encode", heads, AUDIO_POSITIONS, settings.d_model // heads)
    return (
        Method(
            "log_mel",
            LogMel(),
            (sound,),
            (mel,),
            (Dim("samples", 1, WINDOW_SAMPLES),),
            reference=original_features,
        ),
        Method("encode", Encoder(loaded), (features,), cross_outputs(layers, "sound"), (dims["batch"],)),
        *text_methods(
            Decoder(loaded),
            OriginalText(partial(original_logits, loaded)),
            about,
            settings.vocab_size,
            TEXT_POSITIONS,
        ),
    )


class LogMel(nn.Module):
    """Sound [samples] at 16 kHz → features [1,80,3000], as transformers' WhisperFeatureExtractor
    computes them.

    The short-time Fourier transform is products with cosines and sines. The odd bins of N points
    need only the difference of the two halves, the even ones are those of N/2 points, of their sum
    (decimation in frequency, Gentleman and Sande 1966): twice, and the products have 60 thousand
    multiplications a frame instead of 160. Frames of 400 samples every 160 overlap by halves of a
    hop, so they are put together from rows of 160 without a gather.
    """

    def __init__(self):
        super().__init__()
        self.window = nn.Buffer(torch.hann_window(_FFT, dtype=torch.float64).float())
        points, step, bases, bins = _FFT, 1, [], []
        for _ in range(_HALVINGS):
            odd = torch.arange(1, points // 2, 2)
            bases.append(_waves(odd, odd, points, points // 2))
            bins += [odd * step, odd * step]
            points, step = points // 2, step * 2
        cosines, sines = torch.arange(points // 2 + 1), torch.arange(1, points // 2)
        bases.append(_waves(cosines, sines, points, points))
        bins += [cosines * step, sines * step]
        for index, basis in enumerate(bases):  # [200,200], [100,100], [100,100]
            self.register_buffer(f"basis_{index}", basis)
        self.filters = nn.Buffer(
            torch.from_numpy(_extractor().mel_filters).float()[torch.cat(bins)].t().contiguous()
        )  # [80,400]

    def forward(self, waveform: torch.Tensor) -> torch.Tensor:
        sound = F.pad(waveform, (0, WINDOW_SAMPLES - waveform.shape[0]))
        left, right = (
            sound[1 : _FFT // 2 + 1].flip(0),
            sound[-_FFT // 2 - 1 : -1].flip(0),
        )  # frames are centred: mirrored at both ends
        rows = torch.cat([left, sound, right])[: (FRAMES + 2) * _HOP].reshape(FRAMES + 2, _HOP)
        frames = torch.cat([rows[:-2], rows[1:-1], rows[2:, : _FFT - 2 * _HOP]], dim=1) * self.window
        waves = []
        for index in range(_HALVINGS):
            first, second = frames.chunk(2, dim=1)
            frames = first + second
            waves.append(F.linear(first - second, self.get_buffer(f"basis_{index}")))
        last = self.get_buffer(f"basis_{_HALVINGS}")
        spectrum = torch.cat([*waves, F.linear(frames, last)], dim=1)
        mel = F.linear(spectrum * spectrum, self.filters)
        decades = mel.clamp(min=1e-10).log() * (1 / math.log(10))
        floored = torch.maximum(decades, decades.amax() - 8.0)
        return ((floored + 4.0) / 4.0).t().unsqueeze(0)


def _waves(cosines: torch.Tensor, sines: torch.Tensor, points: int, length: int) -> torch.Tensor:
    """Rows of the real Fourier transform of so many points: cosines of these bins, then sines of
    those, each [length].
    """

    def turns(bins):
        return 2 * math.pi * torch.outer(bins, torch.arange(length)).remainder(points).double() / points

    return torch.cat([turns(cosines).cos(), turns(sines).sin()]).float()


def original_features(waveform: torch.Tensor) -> torch.Tensor:
    """What transformers' feature extractor says."""
    return _extractor()(waveform.numpy(), sampling_rate=SAMPLING_RATE_HZ, return_tensors="pt").input_features


def _extractor():
    from transformers import WhisperFeatureExtractor

    return WhisperFeatureExtractor(feature_size=MEL_BINS)


class Encoder(nn.Module):
    """Features [B,80,3000] → keys [B*H,1500,D], then values [B*H,D,1500], of the cross-attention of
    every decoder layer.
    """

    def __init__(self, loaded: Any):
        super().__init__()
        self.encoder = loaded.model.encoder
        self.cross: Any = nn.ModuleList(layer.encoder_attn for layer in loaded.model.decoder.layers)

    def forward(self, features: torch.Tensor) -> tuple[torch.Tensor, ...]:
        hidden = self.encoder(features).last_hidden_state
        return crossed(
            hidden, [a.k_proj for a in self.cross], [a.v_proj for a in self.cross], self.cross[0].num_heads
        )


class Decoder(nn.Module):
    """Tokens [1,N] from a position [1] on, and the sound's keys and values → logits [1,V] for what
    follows the last token.

    prefill and decode_step are this module at N = the prompt's length and N = 1; they share the
    cache.
    """

    def __init__(self, loaded: Any):
        super().__init__()
        decoder, settings = loaded.model.decoder, loaded.config
        self.tokens, self.places = decoder.embed_tokens, decoder.embed_positions
        self.layers, self.norm = decoder.layers, decoder.layer_norm
        heads = settings.decoder_attention_heads
        self.caches: Any = nn.ModuleList(
            KeyValueCache(heads, TEXT_POSITIONS, settings.d_model // heads) for _ in self.layers
        )
        self.positions = Positions(TEXT_POSITIONS)

    def forward(self, tokens: torch.Tensor, position: torch.Tensor, *sound: torch.Tensor) -> torch.Tensor:
        positions = self.positions(position, tokens.shape[1])
        seen = self.positions.seen(positions)
        x = F.embedding(tokens, self.tokens.weight) + F.embedding(positions, self.places.weight)
        for layer, cache, keys, values in zip(self.layers, self.caches, sound, sound[len(self.layers) :]):
            attention, heads = layer.self_attn, layer.self_attn.num_heads
            y = layer.self_attn_layer_norm(x)
            query = split_heads(attention.q_proj(y) * attention.scaling, heads)
            past = cache.update(
                positions, split_heads(attention.k_proj(y), heads), split_heads(attention.v_proj(y), heads)
            )
            x = x + attention.out_proj(attend(query, *past, heads, seen))
            attention = layer.encoder_attn
            query = split_heads(attention.q_proj(layer.encoder_attn_layer_norm(x)) * attention.scaling, heads)
            x = x + attention.out_proj(attend(query, keys, values, heads))
            x = x + layer.fc2(layer.activation_fn(layer.fc1(layer.final_layer_norm(x))))
        return F.linear(self.norm(x[:, -1]), self.tokens.weight)


def original_logits(loaded: Any, tokens: torch.Tensor, cache) -> torch.Tensor:
    """What transformers' decoder says after `tokens`; the sound is in the cache."""
    nothing = torch.zeros(1, AUDIO_POSITIONS, loaded.config.d_model)
    said = loaded.model.decoder(
        input_ids=tokens, encoder_hidden_states=nothing, past_key_values=cache, use_cache=True
    )
    return loaded.proj_out(said.last_hidden_state[:, -1])
