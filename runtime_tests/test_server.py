"""The server packages of all models at full size: right at every bound, guarded, and the same as
the phone's programs.
"""

import json

import pytest
import torch
from clips import BECKETT
from command_line import edgeexport as command
from conftest import server_of

import edgeexport
from edgeexport.errors import InputError

RELATIVE = 1e-4
"""What issue and README promise: the largest error over the range of eager's answer; below FLOOR
two answers count as equal.
"""

INPUTS = {"whisper": ("--input", f"audio={BECKETT}")}
METHODS = {"sam2": 2, "edgetam": 2, "mvit": 1, "whisper": 4, "blip": 3, "yolo": 1}


@pytest.fixture(params=METHODS)
def model(request):
    """The name of a model's fixture, and the folder of its `.pte`."""
    return request.param, request.getfixturevalue(request.param)


def test_every_bound_is_right_and_one_past_it_refused_by_the_library_too(model):
    name, edge = model
    manifest = json.loads(command("show", server_of(edge), "--json").stdout)
    assert all(f["passed"] for f in manifest["findings"]) and len(manifest["methods"]) == METHODS[name]
    from edgeexport.verify.compare import FLOOR

    limit = (
        5e-4 if name == "whisper" else RELATIVE
    )  # real weights: see the model's tolerance for eager's own distance from float64
    outputs = [
        o
        for f in manifest["findings"]
        if f["check"] == "numerics"
        for o in f["details"].values()
        if isinstance(o, dict) and "max_abs" in o
    ]
    assert outputs and all(o["max_abs_relative"] <= limit or o["max_abs"] <= FLOOR for o in outputs)
    wide = [f["details"]["wide_instructions"] for f in manifest["findings"] if f["check"] == "cpu_isa"]
    assert wide == [0] * METHODS[name]


def test_phone_and_server_say_the_same_method_by_method_and_as_pipelines(model, tmp_path):
    name, edge = model
    command("parity", edge, server_of(edge), "--out", tmp_path, *INPUTS.get(name, ()))
    found = json.loads((tmp_path / "parity.json").read_text())
    assert found["passed"] and len(found["lines"]) == 6 * METHODS[name] and found["differences"] == []
    assert list(found["pipeline"]) == ["ExportedProgram", "xnnpack-fp32", "aoti-fp32"], (
        "each ran the whole pipeline"
    )


def test_a_wrong_dtype_is_refused(model):
    _, edge = model
    program = edgeexport.open(server_of(edge))
    first = program.methods[0]
    shape = program[first].inputs[0].sized({d.name: d.min for d in program[first].dims.values()})
    with pytest.raises(InputError, match="must be float32, not float64"):
        program[first](torch.zeros(shape, dtype=torch.float64))


def test_two_transcripts_at_once_on_one_package(whisper):
    """Each conversation has a cache of its own: steps that take turns say what each says alone."""
    program = edgeexport.open(server_of(whisper))
    sounds = [
        program["encode"](
            program["log_mel"](torch.randn(16_000 * s, generator=torch.Generator().manual_seed(s)))[0]
        )
        for s in (1, 3)
    ]

    def steps(conversation, sound):
        token = conversation["prefill"](torch.tensor([[50257, 50362]]), torch.tensor([0]), *sound)[0].argmax()
        for place in range(2, 12):
            yield int(token)
            token = conversation["decode_step"](token.reshape(1, 1), torch.tensor([place]), *sound)[
                0
            ].argmax()

    alone = [list(steps(program.session(), sound)) for sound in sounds]
    together = list(zip(*(steps(program.session(), sound) for sound in sounds)))
    assert [list(tokens) for tokens in zip(*together)] == alone
