"""What a program says about itself: the JSON in it, and what any `.pte` says of its tensors."""

import json
import random
from dataclasses import replace

import pytest
import torch
from conftest import TOY
from in_process import run_command
from torch import nn

import edgeexport
from edgeexport import catalog
from edgeexport.artifact.model_schema import METHOD, model_schema
from edgeexport.artifact.pte import read_methods
from edgeexport.artifact.pte_contents import read_contents
from edgeexport.artifact.pte_memory_plan import read_memory_plans
from edgeexport.errors import ArtifactError, UsageError
from edgeexport.method import Dim, Input, Method, Output, Weights
from edgeexport.samplers import OutputOf
from edgeexport.verify.checks.model_schema import check

TOY_MODEL = catalog.model(TOY)


@pytest.fixture(scope="module")
def contents(toy_artifact):
    return read_contents(toy_artifact.program_path)


def test_the_runtime_returns_it(toy_artifact, contents):
    from executorch.runtime import Runtime

    program = Runtime.get().load_program(toy_artifact.program_path)
    (text,) = program.load_method(METHOD).execute([])
    assert json.loads(text) == contents.schema and program.method_names == {"classify", METHOD}


def test_it_has_names_ranges_sizes_and_what_an_app_needs(toy_artifact, contents):
    entry = contents.schema["classify"]
    (image,), (logits,) = entry["inputs"], entry["outputs"]
    assert (image["name"], image["dtype"], image["range"]) == ("image", "float32", [-3, 3])
    assert image["shape"][0] == {"kind": "range", "range": {"min": 1, "max": 17, "step": 1}, "name": "batch"}
    assert image["shape"][1] == {"kind": "constant", "value": 3} and logits["shape"][0] == image["shape"][0]
    assert entry["runtimeConstraints"] == [
        {
            "kind": "equality",
            "dims": [{"paramSide": side, "tensorIdx": 0, "dimIdx": 0} for side in ("input", "output")],
        }
    ]
    about = contents.schema[METHOD]["about"]
    assert (
        about["weights"]["sha256"] == toy_artifact.manifest.weights.sha256
        and about["prepare"] == toy_artifact.manifest.prepare
    )


def test_state_is_named(text_both):
    schema = read_contents(text_both[0].program_path).schema
    assert schema["decode_step"]["state"] and schema["decode_step"]["dims"] == [
        {"name": "position", "asked": schema["decode_step"]["dims"][0]["asked"]}
    ]


class Lines(nn.Module):
    """Sizes of outputs that are the input's, a line through it, and neither."""

    def forward(self, x, y):
        joined = torch.cat([x, y, x[:1]])
        return x + y, joined, torch.outer(x, y).flatten()


def described(module=Lines(), methods=None, model=TOY_MODEL, weights=Weights("random")):
    inputs = (Input("x", ("count",)), Input("y", ("count",), sample=OutputOf("other", "answer")))
    method = Method(
        "lines", module, inputs, (Output("sum"), Output("joined"), Output("products")), (Dim("count", 2, 9),)
    )
    count = torch.export.Dim("count", min=2, max=9)
    program = torch.export.export(
        module, (torch.zeros(4), torch.zeros(4)), dynamic_shapes=({0: count}, {0: count})
    )
    return json.loads(model_schema(model, "fp32", weights, (method,), methods or {"lines": program}))


def test_sizes_that_hang_together_are_declared():
    entry = described()["lines"]
    x, y, out = (
        {"paramSide": side, "tensorIdx": number, "dimIdx": 0}
        for side, number in (("input", 0), ("input", 1), ("output", 0))
    )
    joined = {"paramSide": "output", "tensorIdx": 1, "dimIdx": 0}
    assert entry["runtimeConstraints"] == [
        {"kind": "equality", "dims": [x, y, out]},
        {"kind": "linear", "dimLhs": joined, "dimRhs": x, "coefficients": [2, 1]},
    ]
    assert [tensor["shape"][0]["range"] for tensor in entry["outputs"]] == [
        {"min": low, "max": high, "step": 1} for low, high in ((2, 9), (5, 19), (4, 81))
    ]
    assert entry["inputs"][1]["output_of"] == {"method": "other", "output": "answer"}


def test_a_method_of_that_name_and_what_json_cannot_say_are_refused():
    with pytest.raises(UsageError, match="A method named 'get_model_schema' cannot be built"):
        described(methods={METHOD: None})
    with pytest.raises(UsageError, match="toy says something of itself .* that JSON cannot"):
        described(model=replace(TOY_MODEL, prepare={"mean": float("inf")}))


def test_a_description_that_does_not_fit_the_tensors_is_found(toy_artifact, monkeypatch):
    from edgeexport.verify.checks import model_schema as checked

    program = edgeexport.open(toy_artifact.path)
    assert [finding.passed for finding in check(program)] == [True]
    true = read_contents(toy_artifact.program_path)

    def with_shape(place, value):
        schema = json.loads(json.dumps(true.schema))
        schema["classify"]["inputs"][0]["shape"][place] = value
        monkeypatch.setattr(checked, "read_contents", lambda path: replace(true, schema=schema))
        (finding,) = check(program)
        return finding

    found = with_shape(0, {"kind": "range", "range": {"min": 1, "max": 18, "step": 1}})
    assert not found.passed and found.message == "image: axis 0 is up to 18, memory is planned for 17"
    assert with_shape(1, {"kind": "constant", "value": 4}).message == "image: axis 1 is 4, in the file 3"
    monkeypatch.setattr(checked, "read_contents", lambda path: replace(true, schema={}))
    assert [finding.message for finding in check(program)] == ["it is not described"]


def test_constant_methods_are_none_of_the_methods(toy_artifact, contents):
    path = toy_artifact.program_path
    assert (
        [m.name for m in read_methods(path)]
        == [p.method for p in read_memory_plans(path)]
        == [m.name for m in contents.methods]
        == ["classify"]
    )
    assert list(edgeexport.open(toy_artifact.path).methods) == ["classify"] and list(contents.constants) == [
        METHOD
    ]


def test_contents(toy_artifact, contents):
    (method,) = contents.methods
    assert contents.size_bytes == toy_artifact.program_path.stat().st_size > contents.flatbuffer_bytes
    assert (method.inputs[0].dtype, method.inputs[0].sizes, method.inputs[0].shape) == (
        "float32",
        (17, 3, 16, 16),
        "bounded",
    )
    (backend,) = method.backends
    assert (
        backend.name == "XnnpackBackend"
        and backend.delegates == toy_artifact.methods["classify"].delegation.delegates
        and backend.size_bytes > 1000
    )
    assert (
        method.planned_bytes == toy_artifact.methods["classify"].planned_memory_bytes
        and "aten::mean.out" in method.operators
    )
    assert contents.named > 5 and contents.named_bytes > 1000


def show(*arguments):
    return run_command("show", *arguments)


def test_show_reads_the_file_alone(toy_artifact, tmp_path):
    alone = tmp_path / "renamed.bin"
    alone.write_bytes(toy_artifact.program_path.read_bytes())
    done = show(alone)
    assert done.returncode == 0, done.stderr
    for text in (
        "image",
        "batch 1..17, 3, 16, 16",
        "-3 to 3",
        "eight classes",
        "XnnpackBackend",
        "outside: 1 x aten::mean.out",
        "planned memory",
    ):
        assert text in done.stdout
    found = json.loads(show(alone, "--json").stdout)
    assert (
        found["schema"]["classify"]["inputs"][0]["name"] == "image"
        and found["methods"][0]["planned_bytes"] > 0
    )


def test_a_damaged_program_is_refused_with_2(toy_artifact, tmp_path):
    content = toy_artifact.program_path.read_bytes()
    for name, bad, said in (
        ("short", content[:3000], "is cut short"),
        ("none", b"not a program at all", "is not an ExecuTorch program"),
        ("empty", b"", "is not an ExecuTorch"),
    ):
        path = tmp_path / f"{name}.pte"
        path.write_bytes(bad)
        done = show(path)
        assert done.returncode == 2 and said in done.stderr and "Traceback" not in done.stderr


def test_changed_bytes_never_end_in_another_error(toy_artifact, contents, tmp_path):
    content, path = toy_artifact.program_path.read_bytes(), tmp_path / "changed.pte"
    dice = random.Random(0)
    refused = 0
    for _ in range(200):
        changed = bytearray(content)
        changed[dice.randrange(8, contents.flatbuffer_bytes)] = dice.randrange(256)
        path.write_bytes(changed)
        try:
            read_contents(path)
        except ArtifactError as error:
            refused += 1
            assert str(path) in str(error)
    assert refused > 50
