"""Programs without a model: seeded answers of the right shapes, so that what is before and after a
model is run for what it is.
"""

import json
from types import SimpleNamespace

import torch
import torch.nn.functional as F
from manifests import manifest_of

from edgeexport.method import Dim
from edgeexport.ship.mobile import golden

STATS = {"mean": [0.485, 0.456, 0.406], "std": [0.229, 0.224, 0.225]}
KEYPOINTS = [f"{side} {joint}" for side in ("left", "right") for joint in ("eye", "wrist", "knee")]
TEXT = {"end": 300, "start": 301, "no_speech": 309, "no_timestamps": 310, "timestamps": 311}


class Fake:
    """A Program of `methods`, {name: answer(*tensors)}, whose batch goes from 1 to 2."""

    def __init__(self, prepare, methods, tokenizer=None):
        self.manifest = manifest_of(prepare, *methods)
        self.artifact = SimpleNamespace(tokenizer=lambda: tokenizer, text_note=None)
        self._methods = methods

    def __getitem__(self, name):
        def call(*tensors):
            method.inputs = [SimpleNamespace(name=f"input {i}") for i in range(len(tensors))]
            outputs = self._methods[name](*tensors)
            method.outputs = [f"output {i}" for i in range(len(outputs))]
            return outputs

        method = _Callable(call, name, {"batch": Dim("batch", 1, 2)})
        return method


class _Callable:
    def __init__(self, call, name, dims):
        self._call, self.name, self.dims = call, name, dims
        self.inputs = self.outputs = ()

    def __call__(self, *tensors):
        return self._call(*tensors)


def fake(name, seed=0, tokenizer=None, **facts):
    """A program for the pipeline `name`; `facts` replace those of its `prepare`."""
    program = _MAKERS[name](torch.Generator().manual_seed(seed), tokenizer)
    program.manifest.prepare.update(facts)
    return program


def _segmentation(generator, tokenizer):
    def decode(*tensors):
        logits = F.interpolate(torch.randn(1, 4, 9, 9, generator=generator), (256, 256), mode="bicubic") * 3
        return logits, torch.rand(1, 4, generator=generator), torch.randn(1, 1, generator=generator)

    features = tuple(torch.randn(1, 4, side, side, generator=generator) for side in (4, 16, 8))
    return Fake({"image_size": 96, **STATS}, {"encode_image": lambda image: features, "decode_masks": decode})


def _captions(generator, tokenizer):
    count = tokenizer.get_vocab_size() if tokenizer else 50
    methods = {
        "encode_image": lambda image: (
            torch.randn(2, 3, 4, generator=generator),
            torch.randn(2, 4, 3, generator=generator),
        ),
        "decode_step": lambda *tensors: (torch.randn(1, count, generator=generator),),
    }
    return Fake(
        {"image_size": 48, **STATS, "text_positions": 12, "start": 1, "end": 2},
        methods | {"prefill": methods["decode_step"]},
        tokenizer,
    )


def _video(generator, tokenizer):
    methods = {"classify": lambda clips: (torch.randn(len(clips), 7, generator=generator),)}
    return Fake(
        {
            "frames": 8,
            "frames_per_second": 7.5,
            "resize_short_side": 40,
            "crop": 32,
            **STATS,
            "labels": list("abcdefg"),
        },
        methods,
    )


def _pose(generator, tokenizer, candidates=300, side=160):
    def detect(images):
        shape = (len(images), candidates // 10, 1)
        centres = (torch.rand(*shape, 2, generator=generator) * 1.2 - 0.1) * side
        sizes = (5 + torch.rand(*shape, 2, generator=generator) * side / 2) * (
            0.9 + 0.2 * torch.rand(*shape[:2], 10, 2, generator=generator)
        )
        centres = centres + 3 * torch.randn(*shape[:2], 10, 2, generator=generator)
        boxes = torch.cat([centres - sizes / 2, centres + sizes / 2], -1).flatten(1, 2)
        points = centres.flatten(1, 2)[:, :, None] + 20 * torch.randn(
            len(images), candidates, len(KEYPOINTS), 2, generator=generator
        )
        scores = torch.rand(len(images), candidates, generator=generator)
        return boxes, scores, points, torch.rand(len(images), candidates, len(KEYPOINTS), generator=generator)

    return Fake(
        {"image_size": side, "padding": 114, "keypoints": KEYPOINTS, "skeleton": [[0, 1], [1, 2]]},
        {"detect": detect},
    )


def _speech(generator, tokenizer):
    """Words and times in an order that is likely, as far as the rules let it be."""
    first, languages = TEXT["timestamps"], {"en": 302, "de": 303, "fr": 304}
    prepare = {
        **TEXT,
        "sampling_rate_hz": 16_000,
        "window_samples": 12_000,
        "text_positions": 24,
        "multilingual": True,
        "languages": languages,
        "translate": 305,
        "transcribe": 306,
        "seconds_a_timestamp": 0.02,
        "latest_first_timestamp": 5,
        "suppress": [7, 8, 9, 301, 305, 306, 309],
        "suppress_first": [20, TEXT["end"]],
    }

    def decode(*tensors):
        logits = 2 * torch.randn(1, first + 38, generator=generator)
        draw = torch.rand(1, generator=generator).item()
        logits[:, first:] += 6 * (draw < 0.45)
        logits[:, TEXT["end"]] += 14 * (draw > 0.93)
        logits[:, TEXT["no_speech"]] += 9 * (draw > 0.8)
        return (logits,)

    methods = {
        "log_mel": lambda sound: (sound[:80].clone(),),
        "encode": lambda features: (features + 1, features - 1),
        "decode_step": decode,
        "prefill": decode,
    }
    return Fake(prepare, methods, tokenizer)


_MAKERS = {
    "segmentation": _segmentation,
    "captions": _captions,
    "video": _video,
    "pose": _pose,
    "speech": _speech,
}


def write_record(folder, name, runs):
    """Write the record of `runs`, pairs (program, options by name), and the manifest; returns the
    paths of both.
    """
    done = tuple(golden.recorded_run(program, name, options) for program, options in runs)
    golden.write(golden.Golden("fake", "fake.pte", "0" * 64, name, done, ()), folder / "golden")
    (folder / "manifest.json").write_text(json.dumps(runs[0][0].manifest.for_app()))
    return folder / "golden", folder / "manifest.json"
