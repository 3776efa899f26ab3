"""Precisions: which layers are quantized by which rule, and what the emitted file says then."""

import json
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from conftest import TOY_TEXT
from in_process import run_command
from programs import captured, error, operators, rewritten
from safetensors.torch import save_file
from torch import nn

import edgeexport
from edgeexport import catalog
from edgeexport.artifact.cases import GoldenAnswers
from edgeexport.compiler.calibration import NOISE, SAMPLES, Calibration
from edgeexport.compiler.passes.decompose_layer_norm import decompose_layer_norm, decompose_layer_norm_apart
from edgeexport.compiler.passes.fold_batch_norm import fold_batch_norm
from edgeexport.compiler.precision import Precision, kind_of, kinds, precision
from edgeexport.compiler.recipes.xnnpack import recipe
from edgeexport.errors import UnknownName, UsageError
from edgeexport.method import Dim, Input, Method, Output, Rule
from edgeexport.samplers import Uniform
from edgeexport.verify.compare import Comparison


class Layers(nn.Module):
    """A tied embedding, layers with and without a bias, and a matrix that is no weight."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.words = nn.Embedding(600, 64)
        self.inner = nn.Sequential(nn.Linear(64, 96), nn.GELU(), nn.Linear(96, 64, bias=False))
        self.fourier = nn.Buffer(torch.randn(64, 64))

    def forward(self, ids):
        x = self.words(ids)
        x = x + self.inner(nn.functional.linear(x, self.fourier))
        return nn.functional.linear(x, self.words.weight)


IDS = torch.randint(0, 600, (1, 7))


@pytest.fixture
def program():
    return captured(Layers(), IDS)


def quantized(program, *rules, calibration=None):
    program, reports = Precision("tried", rules).apply("forward", program, calibration)
    return program, {report.name: report.changes for report in reports}


def emitted(program, folder):
    """How to run a program in the runtime, and its file."""
    from executorch.runtime import Runtime

    path = folder / "program.pte"
    recipe("int8").emit({"forward": program}, path)
    return lambda *inputs: Runtime.get().load_program(path).load_method("forward").execute(inputs)[0], path


def test_every_kind_changes_the_layers_that_it_is_for_and_no_matrix_that_is_no_weight(program):
    assert set(kinds()) == {"fp32", "dynamic_int8", "weight_int8", "static_int8", "embedding_int8"}
    _, changed = quantized(program, Rule("dynamic_int8"), Rule("embedding_int8", operators="embedding"))
    assert changed == {"dynamic_int8": 3, "embedding_int8": 1}
    found = operators(program)
    assert found["linear"] == 4 and found["choose_qparams_per_token_asymmetric"] == 3
    assert found["dequantize_per_channel"] == 3 and found["embedding"] == 2  # rows and scales


def test_the_last_rule_that_matches_decides_by_method_operator_and_module(program):
    linears = [n for n in program.graph.nodes if getattr(n.target, "_opname", "") == "linear"]
    rules = (Rule("dynamic_int8"), Rule("weight_int8", modules="inner.*"), Rule("fp32", methods="encode*"))
    assert [kind_of(rules, "step", n) for n in linears] == [
        "dynamic_int8",
        "weight_int8",
        "weight_int8",
        "dynamic_int8",
    ]
    assert {kind_of(rules, "encode_image", n) for n in linears} == {"fp32"}
    _, changed = quantized(program, *rules)
    assert changed == {"dynamic_int8": 1, "weight_int8": 2}


def test_a_kind_that_nothing_asks_for_changes_nothing(program):
    before = str(program.graph)
    _, changed = quantized(program, Rule("fp32"), Rule("dynamic_int8", methods="other"))
    assert changed == {} and str(program.graph) == before


@pytest.mark.parametrize("kind, least_db", [("dynamic_int8", 60), ("weight_int8", 110)])
def test_the_runtime_says_what_the_quantized_graph_says(program, tmp_path, kind, least_db):
    eager = Layers()(IDS)
    changed, _ = quantized(program, Rule(kind), Rule("embedding_int8", operators="embedding"))
    said = changed.module()(IDS)
    run, _ = emitted(changed, tmp_path)
    assert Comparison.of(run(IDS), said).sqnr_db > least_db
    assert 25 < Comparison.of(said, eager).sqnr_db < 60


def test_a_tied_table_is_stored_once(program, tmp_path):
    changed, _ = quantized(program, Rule("dynamic_int8"), Rule("embedding_int8", operators="embedding"))
    run, path = emitted(changed, tmp_path)
    assert path.stat().st_size < 100_000  # 600 x 64 once, 64 x 96 twice, and 64 x 64 in float32
    with pytest.raises(RuntimeError):  # where embedding_byte would end the process
        run(torch.tensor([[0, 1, 2, 3, 4, 5, 600]]))
    assert run(IDS).isfinite().all()


def test_the_gain_of_a_norm_stays_out_of_weights_that_are_going_to_be_quantized():
    class Normed(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(2)
            self.norm, self.linear = nn.LayerNorm(32), nn.Linear(32, 16)
            self.norm.weight.data.uniform_(0.01, 4.0)

        def forward(self, x):
            return self.linear(self.norm(x))

    module, x = Normed().eval(), torch.randn(3, 5, 32)
    sqnr_db = {}
    for rewrite in (decompose_layer_norm, decompose_layer_norm_apart):
        program, changes = rewritten(captured(module, x), rewrite)
        assert changes == 1 and error(module, program, x) < 1e-5
        program, counted = quantized(program, Rule("weight_int8"))
        assert counted == {"weight_int8": 1}
        sqnr_db[rewrite] = Comparison.of(program.module()(x), module(x)).sqnr_db
    assert set(recipe("fp32").passes) - set(recipe("int8").passes) == {decompose_layer_norm}
    assert sqnr_db[decompose_layer_norm_apart] > sqnr_db[decompose_layer_norm] + 1


def test_a_tensor_that_three_layers_read_is_rounded_once():
    from executorch.backends.xnnpack.serialization import xnnpack_graph_schema as schema
    from executorch.exir import to_edge_transform_and_lower

    from edgeexport.compiler.passes.quantize_once import quantize_once
    from edgeexport.compiler.recipes.xnnpack import DynamicPartitioner
    from edgeexport.compiler.xnnpack_graphs import rewritten_graphs

    class Three(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.ModuleList(nn.Linear(32, 32) for _ in range(3))

        def forward(self, x):
            return sum(layer(x) for layer in self.layers), self.layers[0](x * 2)

    seen = []

    def count(graph):
        seen.append(sum(isinstance(n.xnode_union, schema.XNNConvert) for n in graph.xnodes))
        return 0

    x = torch.randn(5, 32)
    program, _ = quantized(captured(Three(), x), Rule("dynamic_int8"))
    with rewritten_graphs(count, quantize_once, count):
        lowered = to_edge_transform_and_lower(program, partitioner=[DynamicPartitioner()]).to_executorch()
    assert seen == [4, 2]
    from executorch.runtime import Runtime

    answers = Runtime.get().load_program(lowered.buffer).load_method("forward").execute([x])
    for got, want in zip(answers, program.module()(x)):
        assert Comparison.of(got, want).sqnr_db > 60


def test_a_precision_that_does_not_exist_is_named_with_those_that_do():
    toy = catalog.model(TOY_TEXT)
    with pytest.raises(UnknownName, match="int8"):
        precision("int9", toy)
    with pytest.raises(UnknownName, match="Did you mean 'weight_int8'"):
        precision("small", replace(toy, precisions={"small": (Rule("weights_int8"),)}))


def test_a_precision_that_no_layer_takes_is_refused(program):
    none = Precision("static_int8", (Rule("static_int8"),))
    _, reports = none.apply("forward", program, None)
    with pytest.raises(UsageError, match="No layer of toy takes static_int8"):
        none.require_change([reports], "toy")


class Convolutions(nn.Module):
    """With a norm and without, with relu and without, one read twice, and one by groups."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(1)
        self.first = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU())
        self.second = nn.Sequential(nn.Conv2d(8, 8, 3, groups=8, padding=1), nn.SiLU())
        self.third = nn.Conv2d(8, 4, 1)
        self.first[1].running_mean.normal_()
        self.first[1].running_var.uniform_(0.5, 2.0)

    def forward(self, image):
        x = self.first(image)
        return self.third(x + self.second(x))


class Calls:
    """Calibration with calls of one method."""

    def __init__(self, *calls):
        self.given = calls

    def calls(self, method):
        return self.given


def test_convolutions_are_quantized_with_the_ranges_of_the_calls(tmp_path):
    module, image = Convolutions().eval(), torch.rand(2, 3, 16, 16)
    calls = Calls(*((torch.rand(1, 3, 16, 16),) for _ in range(4)))
    shapes = {0: torch.export.Dim("batch", min=1, max=5)}
    program = captured(module, image, dynamic=shapes)
    changed, counted = quantized(program, Rule("static_int8"), calibration=calls)
    assert counted == {"fold_batch_norm": 1, "static_int8": 3}
    found = operators(changed)
    assert found["quantize_per_tensor"] == 5  # the image, the sum, and what each convolution writes
    assert not found["_native_batch_norm_legit_no_training"]
    said = changed.module()(image)
    assert 25 < Comparison.of(said, module(image)).sqnr_db < 60
    run, path = emitted(changed, tmp_path)
    assert Comparison.of(run(image), said).sqnr_db > 35
    assert run(torch.rand(5, 3, 16, 16)).shape == (5, 4, 16, 16)


def test_a_convolution_that_something_else_reads_keeps_its_norm():
    class Read(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.norm = nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4)

        def forward(self, x):
            y = self.conv(x)
            return self.norm(y) + y

    program, changes = rewritten(captured(Read(), torch.rand(1, 3, 8, 8)), fold_batch_norm)
    assert changes == 0 and operators(program)["_native_batch_norm_legit_no_training"] == 1


def test_a_norm_goes_into_its_convolution():
    module, image = Convolutions().eval(), torch.rand(1, 3, 16, 16)
    program, changes = rewritten(captured(module, image), fold_batch_norm)
    assert changes == 1 and error(module, program, image) < 1e-5


def calibration(source, method, **model):
    facts = {"name": "toy", "pipelines": (), "prepare": {}} | model
    return Calibration(source, SimpleNamespace(**facts), {method.name: method}, GoldenAnswers({}))


def test_a_folder_of_photos_is_calibrated_with_through_the_pipeline(tmp_path):
    """Those that cannot be read are skipped, and said."""
    from PIL import Image

    for name in ("a.png", "b.jpg"):
        Image.new("RGB", (400, 300), "red" if name == "a.png" else "blue").save(tmp_path / name)
    (tmp_path / "c.jpg").write_text("no photo")
    seen = []
    image = Input("image", ("batch", 3, 64, 64), sample=Uniform())

    def people(images):
        seen.append(images)
        return torch.zeros(1, 0, 4), torch.zeros(1, 0), torch.zeros(1, 0, 17, 2), torch.zeros(1, 0, 17)

    names = ("boxes", "scores", "keypoints", "visibility")
    outputs = tuple(Output(name) for name in names)
    method = Method("detect", nn.Identity(), (image,), outputs, (Dim("batch", 1, 2),), reference=people)
    prepare = {"image_size": 64, "padding": 114}
    found = calibration(str(tmp_path), method, pipelines=("pose",), prepare=prepare)
    calls = found.calls("detect")
    assert len(calls) == 2 and all(torch.equal(call[0], given) for call, given in zip(calls, seen))
    assert calls[0][0][0, 0].max() > 0.9 > calls[0][0][0, 2, 30, 30], "the red one came first"
    assert found.facts.source == "folder" and found.facts.calls == 2
    (skipped,) = found.facts.skipped
    assert skipped.startswith("c.jpg: ")


def test_tensors_in_a_folder_are_inputs_by_their_names(tmp_path):
    image = Input("image", ("batch", 3, 16, 16), sample=Uniform())
    method = Method("see", Convolutions().eval(), (image,), (Output("map"),))
    with pytest.raises(UsageError, match="It is empty"):
        calibration(str(tmp_path), method).calls("see")
    save_file({"picture": torch.zeros(1)}, tmp_path / "a.safetensors")
    with pytest.raises(UsageError, match="holds picture, which no method takes"):
        calibration(str(tmp_path), method).calls("see")
    save_file({"image": torch.zeros(1, 3, 16, 16, dtype=torch.float64)}, tmp_path / "b.safetensors")
    save_file({"image": torch.ones(2, 3, 16, 16)}, tmp_path / "c.safetensors")
    found = calibration(str(tmp_path), method)
    assert [call[0].shape for call in found.calls("see")] == [(2, 3, 16, 16)]
    assert [line.split(":")[0] for line in found.facts.skipped] == ["a.safetensors", "b.safetensors"]


def test_noise_is_no_calibration_unless_it_is_asked_for():
    image = Input("image", (1, 3, 16, 16), sample=Uniform())
    method = Method("see", Convolutions().eval(), (image,), (Output("map"),))
    with pytest.raises(UsageError, match="--calibration noise"):
        calibration(SAMPLES, method).calls("see")
    accepted = calibration(NOISE, method)
    assert accepted.facts is None, "nothing was drawn yet"
    assert len(accepted.calls("see")) == 8 and accepted.facts.calls == 8


@pytest.fixture(scope="module")
def artifact(tmp_path_factory):
    out = tmp_path_factory.mktemp("precision") / "toy"
    return edgeexport.build(TOY_TEXT, weights="random", precision="int8", out=out)


@pytest.mark.long
def test_a_quantized_artifact_is_right_by_its_own_graph_and_its_quality_is_said_apart(artifact):
    manifest = artifact.manifest
    assert manifest.precision == "int8" and [r.kind for r in manifest.recipe.rules] == [
        "dynamic_int8",
        "embedding_int8",
    ]
    checks = {name: [f for f in manifest.findings if f.check == name] for name in ("numerics", "quality")}
    assert all(f.passed for f in manifest.findings)
    assert len(checks["numerics"]) == len(checks["quality"]) == sum(len(m.cases) for m in manifest.methods)
    assert all("not judged: random weights" in f.limit for f in checks["quality"])
    assert min(float(f.details["sqnr_db"]) for f in checks["quality"]) < 60
    assert manifest.methods[1].dims[0].verified == (1, 12)
    eager, expected = artifact.golden(), artifact.expected()
    assert eager.keys() == expected.keys() and not torch.equal(
        eager["prefill/0/logits"], expected["prefill/0/logits"]
    )


@pytest.mark.long
def test_show_names_the_precision(artifact):
    shown = json.loads(run_command("show", artifact.path, "--json").stdout)
    assert shown["precision"] == "int8"


def test_a_kind_is_left_out_as_a_pass_is():
    from edgeexport.request import request

    asked = dict(targets=["xnnpack"], precision="int8", calibration="samples", weights="random")
    asked |= dict(batch=None, board=None, settings={})
    left = request(TOY_TEXT, skip_passes=["dynamic_int8", "fold_scale"], **asked)
    assert [rule.kind for rule in left.precision.rules] == ["embedding_int8"]
    assert "fold_scale" not in [p.__name__ for p in left.recipes[0].passes]
    with pytest.raises(UsageError, match="no pass 'static_int8' to skip"):
        request(TOY_TEXT, skip_passes=["static_int8"], **asked)


def test_data_that_nothing_is_calibrated_with_is_refused_before_any_work(tmp_path):
    for name, source, said in (
        ("int8", tmp_path, "has no static ranges to find"),
        ("static_int8", tmp_path / "none", "there is no such folder"),
    ):
        failed = run_command("build", TOY_TEXT, "--precision", name, "--calibration", source)
        assert failed.returncode == 2 and said in failed.stderr


@pytest.mark.long
def test_phone_in_int8_and_float32_are_compared_by_what_quantizing_may_cost(artifact, text_both):
    from edgeexport.verify.parity import parity

    found = parity([text_both[0].path, artifact.path])
    pairs = {line.pair: line for line in found.lines}
    assert "dB" in pairs["eager ~ xnnpack-fp32"].allowed and pairs["eager ~ xnnpack-fp32"].passed
    for pair in ("eager ~ xnnpack-int8", "xnnpack-fp32 ~ xnnpack-int8"):
        assert pairs[pair].allowed == "not judged: random weights are no evidence of quality"


def test_what_a_quantized_file_may_differ_from_its_graph_grows_with_what_quantizing_costs_and_with_chance():
    from edgeexport.compiler.precision import ROUNDED
    from edgeexport.verify.allowed import as_far_as_its_graph

    def allowed(sqnr_db, count):
        found = as_far_as_its_graph(ROUNDED, Comparison(0.1, 0.01, sqnr_db), count)
        return found.min_sqnr_db, found.max_abs_relative

    assert allowed(30, 10**6) == (pytest.approx(24, abs=0.1), pytest.approx(0.02, rel=0.01))
    assert allowed(30, 1)[0] == pytest.approx(30 - 6 - 10.3, abs=0.5), "one value: 10.8 times its variance"
    assert allowed(float("inf"), 100)[0] == ROUNDED.min_sqnr_db


@pytest.mark.long
def test_a_package_holds_what_the_quantized_program_says_and_how_far_an_app_may_be(artifact, tmp_path):
    from edgeexport.ship.mobile import golden

    record = golden.record(artifact, pipeline=False)
    cases = {case["method"]: case for case in record.cases}
    assert cases.keys() >= {"encode", "prefill"}
    assert all(case["max_abs_relative"] > 1e-3 for case in cases.values()), "not float32's tolerance"
