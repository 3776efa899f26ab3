"""What the Python pipeline says, call by call: the answers that every other language's pipeline is
held against.

A run is recorded with each call of a method, its tensors in and out. Another language's pipeline is
tested without a device: a replay answers its calls from the record, if they are the recorded ones,
and its result must be the recorded one. On a device the cases are called.
"""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgeexport import pipelines
from edgeexport.artifact.cases import GoldenAnswers, case_calls
from edgeexport.artifact.folder import Artifact, staged
from edgeexport.artifact.manifest import Case, CaseSetup, Manifest
from edgeexport.pipelines.media.made_samples import Sizes, options_of
from edgeexport.pipelines.media.photos import read_photo
from edgeexport.pipelines.media.sounds import read_sound
from edgeexport.pipelines.video import frames
from edgeexport.runtime.program import Program, ProgramMethod
from edgeexport.verify.allowed import Allowed, widest

if TYPE_CHECKING:
    import numpy as np
    import torch

FORMAT = 1

FILE, TENSORS = "golden.json", "tensors"
"""What `write` writes: the record, and the folder of the tensors it names."""

SIZES = Sizes(photo=(320, 240), frame=(192, 144), frames=20, sound_s=2.0)
"""Small, since the record travels with every package."""

RUNS: dict[str, tuple[dict[str, Any], ...]] = {
    "segmentation": ({"point": ("160,120",)}, {"point": ("60,60,0",), "box": ("40,30,200,220",)}),
    "speech": ({},),
    "captions": ({"max-tokens": 5}, {"max-tokens": 5, "prompt": "a photo of"}),
    "video": ({"clips": 1},),
    "pose": ({}, {"confidence": "0.001", "limit": 10}),
}
"""The pipelines that packages have in their platform's language, by the module that holds them,
with the options of each run.
"""

PREFILL, STEP = "prefill", "decode_step"


@dataclass(frozen=True)
class Stored:
    """An array that goes into a file of its own, and what is said about it in the record."""

    facts: Mapping[str, Any]
    values: np.ndarray


@dataclass(frozen=True)
class Golden:
    """A record: `runs` and `cases` are JSON-able but for their arrays, which are `Stored`.
    `pipeline` is a key of RUNS, or None.
    """

    model: str
    program: str
    program_sha256: str
    pipeline: str | None
    runs: tuple[dict[str, Any], ...]
    cases: tuple[dict[str, Any], ...]


def record(artifact: Artifact, given: Mapping[str, Any] | None = None, *, pipeline: bool = True) -> Golden:
    """Run the artifact's pipeline on samples, or on what is `given` by option name, and write down
    what happens; without `pipeline` only its methods' cases.

    Raises RuntimeFault from the program.
    """
    manifest, program = artifact.manifest, Program(artifact)
    name = pipeline_name(manifest) if pipeline else None
    runs = (
        ()
        if name is None
        else tuple(recorded_run(program, name, each) for each in _runs(artifact, name, given or {}))
    )
    return Golden(
        manifest.model.name,
        manifest.program,
        manifest.program_file.sha256,
        name,
        runs,
        tuple(_cases(program)),
    )


def write(golden: Golden, folder: Path) -> None:
    """Write a record into a new folder: FILE, and equal arrays once. Raises ArtifactError where
    that is not possible.
    """
    with staged(folder, force=False) as staging:
        (staging.folder / TENSORS).mkdir()
        data = {"format": FORMAT, **_stored(vars(golden), staging.folder / TENSORS)}
        (staging.folder / FILE).write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
        staging.publish()


def pipeline_name(manifest: Manifest) -> str | None:
    """The first of a manifest's pipelines that packages know; None without one."""
    return next((name for name in manifest.pipelines or () if name in RUNS), None)


def _runs(artifact: Artifact, name: str, given: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The options of each run; a prompt needs a tokenizer, which the artifact may have been built
    without.
    """
    runs = [{**options, **given} for options in RUNS.get(name, ())]
    if name == "captions" and artifact.tokenizer() is None:
        runs = [options for options in runs if "prompt" not in options]
    return runs


def recorded_run(program, name: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """One run of the pipeline called `name` over a Program: its inputs as an app has them, the
    calls it makes, its result.
    """
    recorder = Recorder(program)
    with tempfile.TemporaryDirectory() as folder:
        chosen = pipelines.pipeline(name)
        options, written = options_of(chosen, Path(folder), given, SIZES)
        result = chosen.run(recorder, **options)
        inputs = _inputs(options, program.manifest.prepare)
        return {"inputs": inputs, "calls": recorder.calls, "result": _RESULTS[name](result, written)}


class Recorder:
    """A Program whose calls are written down, and which feeds a prompt token by token.

    ExecuTorch's Kotlin and Swift modules keep the planned memory of each method apart, so that
    `prefill` there cannot fill the cache that `decode_step` reads. Apps never call it, and neither
    does what they are compared with.
    """

    def __init__(self, program):
        self.manifest, self.artifact = program.manifest, program.artifact
        self.calls: list[dict[str, Any]] = []
        self._program = program

    def __getitem__(self, name: str) -> RecordedMethod:
        if name == PREFILL:
            return _StepByStep(self, self._program[PREFILL])
        return RecordedMethod(self, self._program[name])


class RecordedMethod:
    """A method whose calls are written down."""

    def __init__(self, recorder: Recorder, method: ProgramMethod):
        self.dims = method.dims
        self._recorder, self._method = recorder, method

    def __call__(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        method = self._method
        outputs = tuple(method(*tensors))
        names = [i.name for i in method.inputs]
        self._recorder.calls.append(
            {
                "method": method.name,
                "inputs": _tensors(names, tensors),
                "outputs": _tensors(method.outputs, outputs),
            }
        )
        return outputs


class _StepByStep(RecordedMethod):
    """`prefill` as calls of `decode_step`, one a token; the answer is that to the last."""

    def __call__(
        self, tokens: torch.Tensor, position: torch.Tensor, *about: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        step, answer = self._recorder[STEP], ()
        for index in range(tokens.shape[1]):
            answer = step(tokens[:, index : index + 1].contiguous(), position + index, *about)
        return answer


def _cases(program: Program) -> Iterator[dict[str, Any]]:
    """The least case of each method with what it is to answer, in an order in which they can be
    called.

    Where a case of `decode_step` begins after a prompt of one token, that token comes before it as
    a `decode_step` of its own.
    """
    golden, expected = program.artifact.golden(), program.artifact.expected()
    methods = program.artifact.methods

    def answered(name: str, case: Case) -> tuple[list, float]:
        """The answers, and the largest error over their range that is allowed."""
        allowed = Allowed(methods[name], golden, expected).of(case)
        return [expected[f"{name}/{case.id}/{o}"] for o in allowed], widest(allowed)[0]

    for name, entry in methods.items():
        case = entry.cases[0]
        before, inputs = case_calls(case, program, program[name], GoldenAnswers(golden))
        if case.setup:
            first = methods[case.setup.method].cases[0]
            if case.setup != CaseSetup(PREFILL, first.kind, first.sizes, first.seed) or name != STEP:
                # its state comes from a call that a phone cannot make, or whose answer is not
                # recorded
                continue
            yield _case(program[name], before, *answered(PREFILL, first))
        yield _case(program[name], inputs, *answered(name, case))


def _case(method: ProgramMethod, inputs, outputs, max_abs_relative: float) -> dict[str, Any]:
    return {
        "method": method.name,
        "inputs": _tensors([i.name for i in method.inputs], inputs),
        "outputs": _tensors(method.outputs, outputs),
        "max_abs_relative": max_abs_relative,
    }


def _tensors(names, tensors) -> list[Stored]:
    return [
        _array(
            tensor.detach().contiguous().numpy(), name=name, dtype=str(tensor.dtype).removeprefix("torch.")
        )
        for name, tensor in zip(names, tensors)
    ]


def _array(values: np.ndarray, **facts) -> Stored:
    return Stored({**facts, "shape": list(values.shape)}, values)


def _inputs(options: Mapping[str, Any], prepare: Mapping[str, Any]) -> dict[str, Any]:
    """What an app gives: files decoded, clicks and boxes as numbers, the other options as they
    are.
    """
    made = {
        "image": lambda path: _image(read_photo(path)),
        "audio": lambda path: _sound(
            read_sound(path, prepare["sampling_rate_hz"]), prepare["sampling_rate_hz"]
        ),
        "video": lambda path: {
            "kind": "images",
            "images": [_image(frame) for frame in frames(Path(path), prepare["frames_per_second"])],
        },
        "point": lambda texts: [
            [x, y, int(label[0]) if label else 1] for x, y, *label in map(_numbers, texts)
        ],
        "box": lambda texts: [_numbers(text) for text in texts],
        "confidence": float,
        "iou": float,
    }
    return {
        _PLURAL.get(name, name): made[name](value) if name in made else value
        for name, value in options.items()
        if name not in _OURS
    }


_PLURAL = {"point": "points", "box": "boxes"}
_OURS = {"mask", "save", "rate"}
"""Options that apps do not have: what is written, and how a video file is read."""


def _numbers(text: str) -> list[float]:
    return [float(number) for number in text.split(",")]


def _image(photo) -> Stored:
    import numpy as np

    return Stored({"kind": "image", "width": photo.width, "height": photo.height}, np.asarray(photo))


def _sound(samples: np.ndarray, sampling_rate_hz: int) -> Stored:
    return Stored({"kind": "sound", "sampling_rate_hz": sampling_rate_hz, "samples": len(samples)}, samples)


def _segmentation_result(result: Mapping[str, Any], written: Mapping[str, Path]) -> dict[str, Any]:
    import numpy as np
    from PIL import Image

    with Image.open(written["mask"]) as mask:
        facts = {"kind": "mask", "width": mask.width, "height": mask.height}
        return _some("iou_score", "object_score")(result, written) | {
            "mask": Stored(facts, (np.asarray(mask) > 0).astype(np.uint8))
        }


def _pose_result(result: Mapping[str, Any], written: Mapping[str, Path]) -> dict[str, Any]:
    return {
        "people": [{key: person[key] for key in ("score", "box", "keypoints")} for person in result["people"]]
    }


def _some(*keys: str):
    """A result as it is, but for these keys only."""
    return lambda result, written: {key: result[key] for key in keys}


_RESULTS = {
    "segmentation": _segmentation_result,
    "speech": _some("text", "language", "segments", "token_ids"),
    "captions": _some("caption", "token_ids"),
    "video": _some("top5"),
    "pose": _pose_result,
}


def _stored(value: Any, folder: Path) -> Any:
    """The value as JSON data, its arrays written into `folder`: raw, little-endian, row by row,
    named by their content.
    """
    if isinstance(value, Stored):
        data = value.values.astype(value.values.dtype.newbyteorder("<"), copy=False).tobytes()
        name = f"{hashlib.sha256(data).hexdigest()[:16]}.bin"
        if not (folder / name).exists():
            (folder / name).write_bytes(data)
        return {**value.facts, "file": name}
    if isinstance(value, Mapping):
        return {key: _stored(item, folder) for key, item in value.items()}
    return [_stored(item, folder) for item in value] if isinstance(value, (list, tuple)) else value
