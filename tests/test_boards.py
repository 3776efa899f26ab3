"""Boards: their files, whether a program fits one, and the program itself on an emulated one."""

import json
import os
import platform
import shutil

import pytest
from conftest import TOY
from in_process import run_command

import edgeexport
from edgeexport.errors import UnknownName, UsageError
from edgeexport.runtime import boards


@pytest.mark.parametrize("name", sorted({*boards.names()} - {boards.HOST}))
def test_every_board_has_facts_with_sources(name):
    board = boards.board(name)
    assert board.sources and board.planned_limit_bytes <= board.memory_bytes // 4
    if board.emulation:
        assert (
            board.emulation.cpuinfo.count("processor\t") == board.cores
            and f"Features\t: {' '.join(board.isa)}\n" in board.emulation.cpuinfo
        )


def test_the_host_is_what_this_machine_is():
    host = boards.board("host")
    assert (
        host.arch == platform.machine()
        and host.cores == os.cpu_count()
        and host.memory_bytes > 1e9
        and host.isa
        and host.cpu_isa == "native"
    )


@pytest.fixture
def own(tmp_path):
    """A user's own board file: a copy, and a function that replaces text in it."""
    path = tmp_path / "mine.toml"
    shutil.copy(boards.FOLDERS[0] / "raspberry_pi_5.toml", path)

    def replace(old, new):
        text = path.read_text()
        assert old in text
        path.write_text(text.replace(old, new, 1))
        return str(path)

    return replace


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (
            "memory_bytes = 2_147_483_648",
            "memory_gb = 2",
            r"mine.toml, line 4: .*'memory_gb' was unexpected|'memory_bytes' is a required property",
        ),
        (
            "planned_memory_bytes = 500_000_000",
            'planned_memory_bytes = "500 MB"',
            r"mine.toml, line \d+: '500 MB' is not of type 'integer'",
        ),
        ("[budgets]", "[budgets]\nlatency = 5", r"mine.toml, line 17: .*'latency' was unexpected"),
        ("cores = 4", "cores = ", r"mine.toml is not TOML: .*line 3"),
        ('by = "ssh"', 'by = "usb"', r"mine.toml, line \d+: 'usb' is not one of \['ssh', 'adb'\]"),
        ('arch = "aarch64"', 'arch = "arm64"', r"mine.toml, line 2: 'arm64' is not one of"),
    ],
)
def test_a_wrong_key_or_value_is_named_with_its_line(own, old, new, said):
    with pytest.raises(UsageError, match=said):
        boards.board(own(old, new))


def test_names():
    with pytest.raises(UnknownName, match="Did you mean 'raspberry_pi_5'"):
        boards.board("raspberry_pi5")
    with pytest.raises(UsageError, match="no board file nowhere.toml"):
        boards.board("nowhere.toml")


def fit(artifact, board):
    return [f for f in edgeexport.check(artifact, board=board) if f.check == "board"]


def test_what_fits_and_what_does_not(toy_artifact, own):
    assert [f.passed for f in fit(toy_artifact.path, "raspberry_pi_4")] == [True] * 4
    assert not [f for f in edgeexport.check(toy_artifact.path) if f.check == "board"]
    own("planned_memory_bytes = 500_000_000", "planned_memory_bytes = 100")
    path = own('backends = ["XnnpackBackend"]', 'backends = ["EthosUBackend"]')
    (failed,) = [f for f in fit(toy_artifact.path, path) if not f.passed]
    assert (
        failed.method == "classify"
        and "lacks XnnpackBackend" in failed.message
        and failed.limit.startswith("<= 100 bytes")
    )
    own("file_bytes = 1_000_000_000", "file_bytes = 10")
    assert len([f for f in fit(toy_artifact.path, path) if not f.passed]) == 2


def test_a_server_package_is_not_for_a_phone(toy_both):
    assert [(f.passed, f.measured) for f in fit(toy_both[1].path, "raspberry_pi_5")][0] == (False, "for aoti")


def test_what_is_not_going_to_fit_is_refused_before_it_is_lowered(own, tmp_path):
    path = own("memory_bytes = 2_147_483_648", "memory_bytes = 100_000")
    with pytest.raises(UsageError, match="'classify' does not fit mine: .*Lower its greatest sizes"):
        edgeexport.build(TOY, weights="random", out=tmp_path / "a", board=path)
    own("file_bytes = 1_000_000_000", "file_bytes = 1000")
    with pytest.raises(UsageError, match="'classify' does not fit mine: its weights"):
        edgeexport.build(TOY, weights="random", out=tmp_path / "a", board=path)
    with pytest.raises(UsageError, match="graviton.*|.*aarch64 machine"):
        edgeexport.build(TOY, weights="random", target="aoti", out=tmp_path / "a", board="graviton")
    with pytest.raises(UsageError, match="raspberry_pi_5 does not run aoti"):
        edgeexport.build(TOY, weights="random", target="aoti", out=tmp_path / "a", board="raspberry_pi_5")
    assert not (tmp_path / "a").exists()


@pytest.mark.long
def test_a_build_for_a_board_is_checked_against_it_and_takes_its_cpu(tmp_path):
    artifact = edgeexport.build(
        TOY, weights="random", batch="1:2", target="aoti", out=tmp_path / "a", board="x86_64_v3_server"
    )
    assert artifact.manifest.recipe.settings["cpu_isa"]["name"] == "x86-64-v3"
    assert [f.passed for f in artifact.manifest.findings if f.check == "board"] == [True] * 3


MISSING = [tool for tool in ("qemu-aarch64", "aarch64-linux-gnu-g++") if shutil.which(tool) is None]


@pytest.mark.toolchain
@pytest.mark.skipif(
    bool(MISSING), reason=f"not installed: {', '.join(MISSING)} (apt install qemu-user g++-aarch64-linux-gnu)"
)
@pytest.mark.parametrize("board", ["raspberry_pi_5", "android_arm64_baseline"])
def test_the_program_runs_on_an_emulated_board(toy_artifact, board):
    done = run_command("check", toy_artifact.path, "--board", board, "--emulate", "--json")
    assert done.returncode == 0, done.stderr + done.stdout
    findings = json.loads(done.stdout)["findings"]
    assert {"loads", "operators", "numerics", "runners", "instructions", "board"} <= {
        f["check"] for f in findings
    }
    (counted,) = [f["details"]["instructions"] for f in findings if f["check"] == "instructions"]
    (said,) = [f["measured"] for f in findings if f["check"] == "instructions"]
    assert said.endswith("the call before +0"), (
        "a refused call, which dynamic_bounds made before, is not counted as one"
    )
    assert counted["all"] > 4 * counted["fmla"] > 40_000 and counted["sdot"] == counted["smmla"] == 0
    (same,) = [f for f in findings if f["check"] == "runners"]
    assert same["details"]["runtime"] == f"native@{board}" and same["details"]["max_abs_relative"] < 1e-5
    assert len([f for f in findings if f["check"] == "numerics"]) == 1, "the least case"


def test_what_cannot_be_emulated_exits_with_2(toy_artifact, own, tmp_path):
    path = own("[emulation]", "[emulation_not]")
    for options, said in (
        (["--emulate"], "needs a --board"),
        (["--board", path], "'emulation_not' was unexpected"),
        (["--board", "pi"], "There is no board 'pi'"),
    ):
        done = run_command("check", toy_artifact.path, *options)
        assert done.returncode == 2 and said in done.stderr and "Traceback" not in done.stderr
