"""`edgeexport bench`: contenders take turns, are right or say why not, and the figures are those of
the samples.
"""

import json
import statistics

import numpy
import pytest
import torch
from click.testing import CliRunner
from conftest import TOY, TOY_TEXT

from edgeexport.cli.main import cli
from edgeexport.errors import InputError, RuntimeFault, UnknownName, UsageError
from edgeexport.runtime import native
from edgeexport.verify.bench import AGAINST, bench
from edgeexport.verify.bench.figures import ratio, rows


@pytest.fixture(scope="module")
def found(toy_both):
    """Both sides of the toy beside everything."""
    return bench(
        [a.path for a in toy_both],
        model=TOY,
        against=AGAINST,
        baseline="eager",
        threads=(1,),
        rounds=4,
        sizes={"batch": (1, 3)},
    )


@pytest.mark.long
def test_every_contender_is_measured_and_right_at_every_size(found):
    assert [row["sizes"] for row in found["rows"]] == [{"batch": 1}, {"batch": 3}]
    assert [(row["rounds"], row["processes"]) for row in found["rows"]] == [(4, 3)] * 2
    for row in found["rows"]:
        names = [c["name"] for c in row["contenders"]]
        assert names == [*AGAINST, "xnnpack-fp32", "aoti-fp32"] and {
            "aoti",
            "compile",
            "eager",
            "onnxruntime",
            "stock",
        } == set(AGAINST)
        for contender in row["contenders"]:
            assert "error" not in contender, contender
            assert len(contender["samples_ms"]) == 4 and all(
                0 < sample < 5000 for sample in contender["samples_ms"]
            )
            assert contender["max_abs_relative"] < 1e-4
            assert contender["p50_ms"] == pytest.approx(statistics.median(contender["samples_ms"]))
            assert (
                contender["min_ms"]
                <= contender["p50_ms"]
                <= contender["p90_ms"]
                <= contender["p95_ms"]
                <= contender["p99_ms"]
            )
            assert (contender["ratio"] is None) == (contender["name"] == "eager")
            assert (contender["load_ms"] is None) == (contender["name"] in AGAINST)


@pytest.mark.long
def test_noise_and_memory_are_stated(found):
    (noise,) = found["noise"]
    assert (
        noise["threads"] == 1
        and noise["calibration_ms"]["p5"] <= noise["calibration_ms"]["p50"] <= noise["calibration_ms"]["p95"]
    )
    assert [(m["artifact"], m["method"]) for m in found["memory"]] == [
        ("xnnpack-fp32", "classify"),
        ("aoti-fp32", "classify"),
    ]
    for entry in found["memory"]:
        assert (
            0 < entry["rss_before_bytes"] <= entry["rss_loaded_bytes"] <= entry["peak_rss_bytes"]
            and entry["rss_steady_bytes"] <= entry["peak_rss_bytes"]
        )
    assert found["memory"][0]["planned_bytes"] > 0 and found["memory"][1]["planned_bytes"] is None
    assert found["machine"]["cores"] >= 1 and found["versions"]["torch"] == torch.__version__


@pytest.mark.long
def test_a_method_with_state_is_measured_beside_runtimes_that_hold_none(text_both):
    found = bench(
        [text_both[0].path],
        model=TOY_TEXT,
        against=("eager", "onnxruntime"),
        threads=(1,),
        rounds=2,
        methods=("decode_step",),
    )
    (row,) = found["rows"]
    assert [(c["name"], c.get("error")) for c in row["contenders"]] == [
        ("eager", None),
        ("onnxruntime", None),
        ("xnnpack-fp32", None),
    ]


@pytest.mark.toolchain
def test_the_native_runner_times_itself(toy_artifact):
    found = bench([toy_artifact.path], against=(), threads=(1,), rounds=3, runner="native")
    ((ours,),) = (row["contenders"] for row in found["rows"])
    assert (
        ours["name"] == "xnnpack-fp32"
        and len(ours["samples_ms"]) == 3
        and ours["max_abs_relative"] is None
        and ours["ratio"] is None
    )
    assert found["memory"][0]["peak_rss_bytes"] < 200e6, "the runner's own, without Python"


@pytest.mark.toolchain
def test_the_native_runner_repeats_a_call_without_its_tensors(toy_artifact, monkeypatch):
    engine = native.Engine(toy_artifact)
    engine.method("classify")
    x = torch.randn(2, 3, 16, 16)
    (before,), _ = engine.call("classify", [x], warmup=2, repeat=3)
    monkeypatch.setattr(native.Here, "write", None)
    monkeypatch.setattr(native.Here, "read", None)
    assert 0 < engine.again() < 1000 and 0 < engine.load_ms("classify") < 1000
    monkeypatch.undo()
    assert torch.equal(engine.call("classify", [x])[0][0], before)


def test_ratios_are_of_medians_with_the_spread_of_rounds():
    base = [10.0, 20.0, 10.0, 10.0]
    found = ratio([5.0, 10.0, 5.0, 6.0], base)
    assert found["median"] == pytest.approx(5.5 / 10.0)
    assert found["low"] == pytest.approx(0.5) and found["high"] == pytest.approx(
        numpy.percentile([0.5, 0.5, 0.5, 0.6], 95)
    )
    slow_second_half = ratio([1.0, 1.0, 9.0, 9.0], [2.0, 2.0, 18.0, 18.0])
    assert slow_second_half == {"median": 0.5, "low": 0.5, "high": 0.5}, "noise that lasts cancels"


def test_what_differs_from_process_to_process_is_in_the_spread():
    """One process had PyTorch's features of Whisper at 14 ms, the next at 18 ms, each with a spread
    of rounds that left the other's ratio out.
    """

    def process(base_ms, own_ms, **more):
        contenders = [
            {"name": "eager", "samples_ms": [base_ms] * 3, "max_abs_relative": 0.0},
            {"name": "own", "samples_ms": [own_ms] * 3, "max_abs_relative": 1e-6, **more},
        ]
        return [{"method": "log_mel", "sizes": {}, "threads": 1, "rounds": 3, "contenders": contenders}]

    first, second = (
        process(14.0, 9.0, first_ms=20.0),
        process(18.0, 9.0, first_ms=40.0, max_abs_relative=2e-6),
    )
    (row,) = rows([first, second], "eager")
    _, own = row["contenders"]
    assert (row["rounds"], row["processes"], own["samples_ms"], own["first_ms"], own["max_abs_relative"]) == (
        6,
        2,
        [9.0] * 6,
        20.0,
        2e-6,
    )
    assert own["ratio"] == pytest.approx({"median": 9 / 16, "low": 9 / 18, "high": 9 / 14})
    for alone in (first, second):
        assert (
            own["ratio"]["low"]
            <= rows([alone], "eager")[0]["contenders"][1]["ratio"]["median"]
            <= own["ratio"]["high"]
        )
    failed = [
        first[0] | {"contenders": [first[0]["contenders"][0], {"name": "own", "error": "RuntimeError: no"}]}
    ]
    assert rows([first, failed], "eager")[0]["contenders"][1] == {"name": "own", "error": "RuntimeError: no"}


@pytest.mark.parametrize(
    ("options", "error", "said"),
    [
        ({"against": ("tensorrt",)}, UnknownName, "compile"),
        ({"baseline": "compile"}, UnknownName, "eager"),
        ({"methods": ("clasify",)}, UnknownName, "classify"),
        ({"sizes": {"batsch": (1,)}}, UnknownName, "batch"),
        ({"sizes": {"batch": (1, 18)}}, InputError, "1 to 17"),
        ({"rounds": 0}, UsageError, "at least 1"),
        ({"processes": 0}, UsageError, "processes must be at least 1"),
        ({"runner": "executorch9"}, UsageError, "native"),
        (
            {"runner": "native@raspberry_pi_5"},
            UsageError,
            "is emulated there: its times would be the emulator's",
        ),
        (
            {"runner": "native@raspberry_pi_5=ssh://pi@nowhere.invalid", "against": ("eager", "stock")},
            UsageError,
            "eager, stock can run on this machine only. On raspberry_pi_5, .*leave --against out",
        ),
        (
            {"runner": "native@raspberry_pi_5=ssh://pi@nowhere.invalid", "baseline": "eager"},
            UnknownName,
            "no contender 'eager'",
        ),
    ],
)
def test_what_is_not_there_is_refused_before_any_work(toy_artifact, options, error, said):
    with pytest.raises(error, match=said):
        bench([toy_artifact.path], **options)


def test_code_of_its_own_is_named_by_the_user_not_by_the_manifest(toy_artifact):
    with pytest.raises(UsageError, match=r"built from code of its own \(.*toy.py:MODEL\).*--model"):
        bench([toy_artifact.path], threads=(1,), rounds=1)


def test_a_server_package_is_not_measured_on_a_board(toy_both):
    with pytest.raises(
        UsageError, match=r"is a server package \(toy.pt2\); on raspberry_pi_5 a .pte can be measured"
    ):
        bench([a.path for a in toy_both], runner="native@raspberry_pi_5=ssh://pi@nowhere.invalid")


@pytest.mark.toolchain
def test_a_contender_that_cannot_run_is_a_result_and_a_crash_says_where(toy_artifact, monkeypatch, tmp_path):
    (tmp_path / "sitecustomize.py").write_text(
        "import os, executorch.runtime as r\n"
        "def no(self, path): raise RuntimeError('this program does not load')\n"
        "if os.environ['BROKEN'] == 'error': r.Runtime.load_program = no\n"
        "else: r.Runtime.load_program = lambda self, path: os.kill(os.getpid(), 11)\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv("BROKEN", "error")
    once = {"threads": (1,), "rounds": 1, "runner": "native"}
    found = bench([toy_artifact.path], against=("eager", "stock"), model=TOY, **once)
    errors = {c["name"]: c.get("error") for c in found["rows"][0]["contenders"]}
    assert errors == {
        "eager": None,
        "stock": "RuntimeError: this program does not load",
        "xnnpack-fp32": None,
    }
    monkeypatch.setenv("BROKEN", "crash")
    with pytest.raises(RuntimeFault, match="ended by SIGSEGV at: classify: stock"):
        bench([toy_artifact.path], against=("eager", "stock"), model=TOY, **once)


def test_the_command_writes_what_it_prints_and_overwrites_nothing(toy_artifact, tmp_path):
    out = tmp_path / "bench.json"
    options = [
        "bench",
        str(toy_artifact.path),
        "--model",
        TOY,
        "--threads",
        "1",
        "--rounds",
        "2",
        "--out",
        str(out),
    ]
    done = CliRunner().invoke(cli, options)
    assert (
        done.exit_code == 0
        and "x eager" in done.output
        and "noise" in done.output
        and "Memory" in done.output
    ), done.output
    assert json.loads(out.read_text())["kind"] == "bench"
    again = CliRunner().invoke(cli, options)
    assert "exists" in str(again.exception) or "there already" in str(again.exception)
    for options, said in (
        (["--at", "adb:"], "--at needs the --board"),
        (["--board", "raspberry_pi_5"], "--board needs --at"),
        (["--board", "raspberry_pi_5", "--at", "pi"], "no address of a device"),
    ):
        wrong = CliRunner().invoke(cli, ["bench", str(toy_artifact.path), *options])
        assert isinstance(wrong.exception, UsageError) and said in str(wrong.exception)
    wrong = CliRunner().invoke(cli, ["bench", str(toy_artifact.path), "--size", "batch=x"])
    assert isinstance(wrong.exception, UsageError) and "batch=4" in str(wrong.exception)
