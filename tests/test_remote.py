"""Real boards: a program is checked on a device that is reached over ssh or adb.

ssh: a real server (sshd) that the test starts on this machine, on a port of its own; the device is
this machine. adb: no Android device was there; a script that is called `adb` runs the commands in a
folder of this machine and writes down its command lines, so what a phone says to them is not
tested.
"""

import getpass
import json
import os
import platform
import shutil
import socket
import subprocess
import time
from pathlib import Path

import pytest
import torch
from in_process import run_command

import edgeexport
from edgeexport.artifact import validated_json
from edgeexport.cli.check import command
from edgeexport.errors import RuntimeFault, UsageError
from edgeexport.runtime import boards, native, remote, runner
from edgeexport.runtime.program import Runtime
from edgeexport.verify.bench import bench, machine
from edgeexport.verify.bench.memory import CALLS

SSHD = shutil.which("sshd") or shutil.which("/usr/sbin/sshd")
needs_runner = pytest.mark.skipif(
    not shutil.which("g++") or not shutil.which("cmake"),
    reason="the native runner needs g++ and cmake (apt install g++ nlohmann-json3-dev; pip install cmake)",
)
needs_ssh = pytest.mark.skipif(
    not SSHD or not shutil.which("ssh"), reason="no sshd or ssh (apt install openssh-server openssh-client)"
)


def board_file(folder, name, libc="glibc", arch=platform.machine(), reach=""):
    """A board that is this machine."""
    path = folder / f"{name}.toml"
    path.write_text(
        f'summary = "this machine"\narch = "{arch}"\ncores = 2\nmemory_bytes = 2_000_000_000\nisa = []\nlibc'
        f' = "{libc}"\nsources = ["none"]\n[runtime]\ntargets = ["xnnpack"]\nbackends ='
        ' ["XnnpackBackend"]\n[budgets]\nfile_bytes = 500_000_000\nplanned_memory_bytes = 500_000_000\n'
        + (f'[reach]\nby = "{reach}"\n' if reach else "")
    )
    return str(path)


def program(path, name, text):
    """A shell script on the PATH."""
    path.mkdir(exist_ok=True)
    (path / name).write_text(f"#!/bin/sh\n{text}\n")
    (path / name).chmod(0o755)


class Server:
    """An sshd of this user, and an `ssh` on the PATH that knows its key, its identity, and writes
    down what it is called with.
    """

    def __init__(self, folder):
        self.folder, self.cache = folder, folder / "cache"
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        for key in ("host", "mine", "stranger"):
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / key], check=True)
        shutil.copy(folder / "mine.pub", folder / "authorized_keys")
        (folder / "known_hosts").write_text(f"[127.0.0.1]:{self.port} {(folder / 'host.pub').read_text()}")
        (folder / "sshd_config").write_text(
            f"Port {self.port}\nListenAddress 127.0.0.1\nHostKey {folder}/host\nAuthorizedKeysFile"
            f" {folder}/authorized_keys\nPidFile none\nUsePAM no\nStrictModes no\nPasswordAuthentication"
            f" no\nKbdInteractiveAuthentication no\nPermitRootLogin yes\nSetEnv XDG_CACHE_HOME={self.cache}\n"
        )
        self.use_key("mine")
        self.log = folder / "ssh.log"
        program(
            folder / "bin",
            "ssh",
            f'printf "%s\\n" "$(echo "$*" | tr "\\n" " ")" >> {self.log}; exec {shutil.which("ssh")} -F'
            f' {folder}/config "$@"',
        )
        if os.getuid() == 0:
            Path("/run/sshd").mkdir(exist_ok=True)
        self.process = subprocess.Popen(
            [SSHD, "-D", "-e", "-f", folder / "sshd_config"], stderr=open(folder / "sshd.log", "wb")
        )
        self._wait()

    def use_key(self, name):
        (self.folder / "config").write_text(
            f"IdentityFile {self.folder}/{name}\nIdentitiesOnly yes\nIdentityAgent none\nUserKnownHostsFile"
            f" {self.folder}/known_hosts\n"
        )

    def _wait(self):
        for _ in range(100):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", self.port)) == 0:
                    return
            time.sleep(0.1)
        raise AssertionError((self.folder / "sshd.log").read_text())

    @property
    def url(self):
        return f"ssh://{getpass.getuser()}@127.0.0.1:{self.port}"

    @property
    def there(self):
        """The folders on the device."""
        return sorted(path.name for path in (self.cache / "edgeexport").iterdir())

    def pushed(self):
        """The files that were sent since it was asked before."""
        lines = self.log.read_text().splitlines() if self.log.exists() else []
        self.log.write_text("")
        return [
            line.split("cat > ")[1].strip(" '\"").rpartition("/")[2] for line in lines if "cat > " in line
        ]


@pytest.fixture
def server(tmp_path, monkeypatch):
    made = Server(tmp_path)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    yield made
    made.process.terminate()
    made.process.wait()


@pytest.fixture
def here(tmp_path):
    return board_file(tmp_path, "here")


def check(artifact, *options):
    return run_command("check", artifact.path, *options)


CONSTANT = {runner.NAME, *runner.LIBRARIES, "toy.pte"}


@pytest.mark.toolchain
@needs_ssh
@needs_runner
def test_every_check_passes_over_ssh_and_a_second_run_sends_only_tensors(server, here, toy_artifact):
    done = check(toy_artifact, "--board", here, "--at", server.url, "--json")
    assert done.returncode == 0, done.stderr + done.stdout
    findings = json.loads(done.stdout)["findings"]
    assert {"loads", "operators", "numerics", "dynamic_bounds", "runners", "board"} <= {
        f["check"] for f in findings
    }
    assert len([f for f in findings if f["check"] == "numerics"]) == len(
        toy_artifact.methods["classify"].cases
    ), "all cases, not the least only"
    (same,) = [f for f in findings if f["check"] == "runners"]
    assert same["details"]["runtime"] == f"native@{here}={server.url}" and same["limit"].startswith(
        "<= 1e-04"
    )
    first, kept = server.pushed(), server.there
    assert CONSTANT <= set(first) and len([name for name in first if name in CONSTANT]) == len(CONSTANT), (
        "each once, by the parent or the child"
    )
    assert len(kept) == 2 and all(len(name) == 64 for name in kept), "no session is left"
    native.make_ready(toy_artifact, here, server.url)
    assert server.pushed() == [] and server.there == kept
    program = edgeexport.open(toy_artifact.path, runtime=f"native@{here}={server.url}")
    assert program["classify"](torch.zeros(2, 3, 16, 16))[0].shape == (2, 8) and not program.emulated
    assert server.pushed() == ["in0"]
    program.engine.close()
    assert server.there == kept


@pytest.mark.toolchain
@needs_ssh
@needs_runner
def test_artifacts_are_timed_on_the_board_beside_each_other(server, here, toy_artifact, toy_copy):
    found = bench(
        [toy_artifact.path, toy_copy],
        threads=(1,),
        rounds=3,
        processes=2,
        sizes={"batch": (2,)},
        runner=f"native@{here}={server.url}",
    )
    validated_json.validate(found, "bench", "found")
    (row,) = found["rows"]
    first, second = row["contenders"]
    assert [first["name"], second["name"]] == [str(toy_artifact.path), str(toy_copy)] and row[
        "baseline"
    ] == first["name"]
    for contender in row["contenders"]:
        assert len(contender["samples_ms"]) == 3 and all(
            0 < ms < 1000 for ms in (*contender["samples_ms"], contender["first_ms"], contender["load_ms"])
        )
        assert contender["max_abs_relative"] is None, "nothing is measured against the original here"
    assert first["ratio"] is None and second["ratio"]["median"] > 0
    assert (found["board"], found["at"], found["noise"]) == ("here", server.url, []) and found["machine"][
        "cpu"
    ]
    own = machine()
    assert [found["machine"][key] for key in ("cores", "system")] == [
        own["cores"],
        f"{platform.system()} {platform.release()} {platform.machine()}",
    ]
    assert found["machine"]["memory_bytes"] == pytest.approx(own["memory_bytes"], rel=0.1)
    for entry in found["memory"]:
        assert (
            1e6 < entry["rss_before_bytes"] <= entry["rss_loaded_bytes"] <= entry["peak_rss_bytes"] < 200e6
        ), "the runner's, there"
    assert server.pushed().count("in0") == 2 * (2 + CALLS), "tensors are sent once a process, not every round"
    assert all(len(name) == 64 for name in server.there), "no session is left"


@pytest.mark.toolchain
@needs_ssh
@needs_runner
def test_a_session_gives_times_and_ends_without_a_trace(server, here, toy_artifact):
    engine = native.Engine(toy_artifact, here, server.url)
    x = torch.randn(3, 3, 16, 16)
    (ours,), latency_ms = engine.call("classify", [x], warmup=1, repeat=4)
    (theirs,) = edgeexport.open(toy_artifact.path)["classify"](x)
    assert torch.allclose(ours, theirs, atol=1e-6) and len(latency_ms) == 4
    with pytest.raises(RuntimeFault, match="load_method: .*code"):
        engine.method("other")
    maps = Path(f"/proc/{runner_pid(server)}/maps").read_text()
    assert str(server.cache) in maps and "site-packages/executorch" not in maps, (
        "the libraries that were sent are those that run"
    )
    assert len([name for name in server.there if name.startswith("session-")]) == 1
    engine.close()
    with pytest.raises(RuntimeFault, match="was ended before 'describe'"):
        engine.describe()
    assert all(len(name) == 64 for name in server.there)


def runner_pid(server):
    """Of the runner that was sent there."""
    (found,) = (p for p in Path("/proc").glob("[0-9]*") if str(server.cache) in _target(p / "exe"))
    return found.name


def _target(link):
    try:
        return os.readlink(link)
    except OSError:  # ended meanwhile, or of another user
        return ""


@pytest.mark.toolchain
@needs_ssh
@needs_runner
def test_a_lost_connection_says_at_which_command_and_the_device_cleans_up(server, here, toy_artifact):
    engine = native.Engine(toy_artifact, here, server.url)
    subprocess.run(
        ["ssh", "-S", engine._place._transport._socket, "-O", "exit", server.url],
        check=True,
        capture_output=True,
    )
    with pytest.raises(RuntimeFault, match=r"was lost with the connection to ssh://.* at 'describe'"):
        engine.describe()
    with pytest.raises(RuntimeFault, match=r"The connection to ssh://.* was lost; it could not take in0"):
        engine.call("classify", [torch.zeros(1, 3, 16, 16)])
    for _ in range(50):
        if all(len(name) == 64 for name in server.there):
            return
        time.sleep(0.1)
    raise AssertionError(server.there)


@pytest.mark.toolchain
@needs_ssh
def test_a_runner_that_hangs_is_ended_there_too_and_one_that_dies_says_how(
    server, here, toy_artifact, tmp_path, monkeypatch
):
    program(tmp_path, "fake", "exec sleep 617")
    monkeypatch.setattr(remote, "runner_files", lambda board: {runner.NAME: tmp_path / "fake"})
    monkeypatch.setattr(native, "TIME_LIMIT_S", 1.0)
    with pytest.raises(RuntimeFault, match="did not answer 'load' within 1 s"):
        native.Engine(toy_artifact, here, server.url)
    assert all(len(name) == 64 for name in server.there)
    assert not [p for p in Path("/proc").glob("[0-9]*/cmdline") if _read(p) == b"sleep\x00617\x00"]
    for text, said in (
        ("kill -SEGV $$", "was ended by SIGSEGV at 'load'"),
        ("echo Hello; cat", "answer to 'load' is none: 'Hello'"),
        ("echo oh >&2; exit 3", r"ended with code 3 at 'load' \(oh\)"),
    ):
        program(tmp_path, "fake", text)
        monkeypatch.setattr(native, "TIME_LIMIT_S", 20.0)
        with pytest.raises(RuntimeFault, match=said):
            native.Engine(toy_artifact, here, server.url)


def _read(path):
    try:
        return path.read_bytes()
    except OSError:
        return b""


@pytest.mark.toolchain
@needs_ssh
def test_what_was_cut_off_or_changed_is_not_taken_for_the_file(server, here, tmp_path, monkeypatch):
    device = remote.Device(boards.board(here), server.url)
    file = tmp_path / "model.pte"
    file.write_bytes(bytes(range(256)) * 1000)

    def cut(self, local, to):
        self.run(f"head -c 1000 {local} > {to}", "take a part")
        raise RuntimeFault("cut off")

    whole = remote.Ssh.push
    monkeypatch.setattr(remote.Ssh, "push", cut)
    with pytest.raises(RuntimeFault, match="cut off"):
        device.keep({"model.pte": file})
    assert server.there == []
    monkeypatch.setattr(
        remote.Ssh, "push", lambda self, local, to: self.run(f"head -c 1000 {local} > {to}", "take a part")
    )
    with pytest.raises(RuntimeFault, match=r"holds after the transfer of model.pte is not what was sent"):
        device.keep({"model.pte": file})
    assert server.there == []
    monkeypatch.setattr(remote.Ssh, "push", whole)
    kept = Path(device.keep({"model.pte": file}))
    assert (kept / "model.pte").read_bytes() == file.read_bytes() and server.there == [kept.name]
    (kept / "model.pte").write_bytes(b"rotten")
    server.pushed()
    assert (
        device.keep({"model.pte": file}) == str(kept)
        and (kept / "model.pte").read_bytes() == file.read_bytes()
    )
    assert (
        server.pushed() == ["model.pte"]
        and device.keep({"model.pte": file}) == str(kept)
        and server.pushed() == []
    )
    old = kept.with_name("session-0123")
    old.mkdir()
    os.utime(old, (0, 0))
    kept.with_name("session-of-today").mkdir()
    remote.Device(boards.board(here), server.url)
    assert server.there == [kept.name, "session-of-today"], "what was left days ago is removed"


@pytest.mark.toolchain
@needs_ssh
@needs_runner
def test_why_a_device_cannot_be_reached(server, here, toy_artifact):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        unused = f"ssh://127.0.0.1:{free.getsockname()[1]}"
    with pytest.raises(UsageError, match="no SSH server listens there"):
        native.make_ready(toy_artifact, here, unused)
    server.use_key("stranger")
    done = check(toy_artifact, "--board", here, "--at", server.url)
    assert (
        done.returncode == 2 and "it takes no key of yours" in done.stderr and "Traceback" not in done.stderr
    )
    server.use_key("mine")
    (server.folder / "known_hosts").write_text("")
    with pytest.raises(UsageError, match="its host key is not known, or another"):
        remote.Ssh(server.url)
    with pytest.raises(UsageError, match="no machine of this name is known"):
        remote.Ssh("ssh://pi@nowhere.invalid")
    assert not server.cache.exists()


@pytest.mark.toolchain
@needs_ssh
def test_another_device_than_the_board_is_refused(server, tmp_path):
    other = {"x86_64": "aarch64", "aarch64": "x86_64"}[platform.machine()]
    with pytest.raises(
        UsageError, match=rf"is 'Linux {platform.machine()}', and the board other 'Linux {other}'"
    ):
        remote.Device(boards.board(board_file(tmp_path, "other", arch=other)), server.url)
    path = Path(board_file(tmp_path, "more"))
    path.write_text(path.read_text().replace("isa = []", 'isa = ["fp64x"]'))
    with pytest.raises(UsageError, match="lacks fp64x, which the board more has"):
        remote.Device(boards.board(str(path)), server.url)
    with pytest.raises(UsageError, match="The board raspberry_pi_5 is reached by ssh, and adb: is for adb"):
        native.place_of("raspberry_pi_5", "adb:")


@pytest.fixture
def phone(tmp_path, monkeypatch):
    """A script called `adb`: /data/local/tmp is `phone` in a folder of this machine; what it is
    called with is in `adb.log`, the devices in `devices`.
    """
    (tmp_path / "phone").mkdir()
    (tmp_path / "devices").write_text("List of devices attached\nR58M1\tdevice\n\n")
    program(
        tmp_path / "bin",
        "adb",
        f"""
        there() {{ sed -u "s#/data/local/tmp#{tmp_path}/phone#g"; }}
        printf "%s\\n" "$(echo "$*" | tr "\\n" " ")" >> {tmp_path}/adb.log
        [ "$1" = devices ] && exec cat {tmp_path}/devices
        [ "$1 $2" = "-s R58M1" ] || {{ echo "adb: error: device '$2' not found" >&2; exit 1; }}
        what=$3; shift 3
        case $what in
            get-state) grep -q "^R58M1.device" {tmp_path}/devices && echo device;;
            push) if [ -e {tmp_path}/full ]; then
                      echo "adb: error: failed to copy '$1' to '$2': remote No space left on device" >&2
                      exit 1
                  fi
                  cp "$1" "$(echo "$2" | there)";;
            pull) cp "$(echo "$1" | there)" "$2";;
            shell) [ "$1" = -T ] && shift; there | sh -c "$(echo "$*" | there)";;
            *) exit 9;;
        esac""",
    )
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    return tmp_path


@pytest.fixture
def android(tmp_path):
    return board_file(tmp_path, "android", libc="bionic", reach="adb")


@pytest.fixture
def own_runner(tmp_path, monkeypatch):
    """A runner that the user built, with its libraries beside it: here it is this machine's."""
    files = runner.runner_files(boards.board(board_file(tmp_path, "host")))
    (tmp_path / "ndk").mkdir()
    for name, path in files.items():
        shutil.copy(path, tmp_path / "ndk" / name)
    monkeypatch.setenv(runner.ANDROID_RUNNER, str(tmp_path / "ndk" / runner.NAME))


def adb_lines(phone):
    lines = (phone / "adb.log").read_text().splitlines()
    (phone / "adb.log").write_text("")
    return lines


@pytest.mark.toolchain
@needs_runner
def test_every_check_passes_over_adb(phone, android, own_runner, toy_artifact):
    done = check(toy_artifact, "--board", android, "--at", "adb:", "--json")
    assert done.returncode == 0, done.stderr + done.stdout
    assert {"loads", "numerics", "runners", "board"} <= {
        f["check"] for f in json.loads(done.stdout)["findings"]
    }
    root, lines = phone / "phone" / "edgeexport", adb_lines(phone)
    assert any("/data/local/tmp/edgeexport" in line for line in lines), (
        "the rest is where that is, said the device"
    )
    pushed = [line.split()[-1].rpartition("/")[2] for line in lines if " push " in line]
    assert lines[0].split() == ["devices"] and all(
        line.startswith(("devices", "-s R58M1 ")) for line in lines
    )
    assert sorted(name for name in pushed if name in CONSTANT) == sorted(CONSTANT) and "in0" in pushed
    assert any(
        f"LD_LIBRARY_PATH={root}/" in line and line.startswith("-s R58M1 shell -T sh -c ") for line in lines
    )
    assert any(line.startswith(f"-s R58M1 pull {root}/session-") for line in lines)
    kept = sorted(path.name for path in root.iterdir())
    assert len(kept) == 2 and all(len(name) == 64 for name in kept)
    native.place_of(android, "adb://R58M1").close()
    assert not [line for line in adb_lines(phone) if " push " in line], "all of it is there"


@pytest.mark.toolchain
@needs_runner
def test_one_artifact_is_timed_over_adb_and_printed(phone, android, own_runner, toy_artifact, tmp_path):
    done = run_command(
        "bench",
        toy_artifact.path,
        "--board",
        android,
        "--at",
        "adb:",
        "--threads",
        "1",
        "--rounds",
        "2",
        "--out",
        tmp_path / "b.json",
    )
    assert done.returncode == 0, done.stderr
    assert "(android at adb:)" in done.stdout and "xnnpack-fp32" in done.stdout and "noise" not in done.stdout
    found = validated_json.read(tmp_path / "b.json", "bench")
    ((ours,),) = (row["contenders"] for row in found["rows"])
    assert len(ours["samples_ms"]) == 2 and ours["ratio"] is None and found["board"] == "android"
    assert any(line.startswith("-s R58M1 shell ") and "/proc/meminfo" in line for line in adb_lines(phone))


def test_no_room_on_the_device(phone, android, tmp_path):
    device = remote.Device(boards.board(android), "adb:")
    (tmp_path / "full").touch()
    (tmp_path / "model.pte").write_bytes(b"x")
    with pytest.raises(
        RuntimeFault,
        match=(
            r"no room on adb://R58M1 to take model.pte .*No space left.*checked there before are in"
            r" .*/edgeexport\."
        ),
    ):
        device.keep({"model.pte": tmp_path / "model.pte"})
    assert list((phone / "phone" / "edgeexport").iterdir()) == []
    device.transport._serial = "gone"
    with pytest.raises(
        RuntimeFault,
        match=(
            "The connection to adb://R58M1 was lost; it could not verify model.pte .*device 'gone' not found"
        ),
    ):
        device.keep({"model.pte": tmp_path / "model.pte"})


@pytest.mark.parametrize(
    ("devices", "url", "said"),
    [
        ("", "adb:", r"0 are there \(none: plug one in, with USB debugging"),
        ("A1\tdevice\nB2\tdevice\n", "adb:", r"2 are there \(A1, B2\). Name one: adb://SERIAL"),
        ("A1\tdevice\n", "adb://B2", r"There is no device B2. adb sees: A1"),
        ("A1\tunauthorized\n", "adb:", r"A1 is 'unauthorized': accept this computer on its screen"),
        ("A1\toffline\n", "adb://A1", r"A1 is 'offline': unplug it"),
        (
            "A1\tno permissions (user in plugdev group; are your udev rules wrong?)\n",
            "adb:",
            "may not use the USB device",
        ),
    ],
)
def test_which_android_device(phone, devices, url, said):
    (phone / "devices").write_text(f"List of devices attached\n{devices}\n")
    with pytest.raises(UsageError, match=said):
        remote.Adb(url)


def test_android_needs_a_runner_of_the_users_own(monkeypatch, tmp_path):
    monkeypatch.delenv(runner.ANDROID_RUNNER, raising=False)
    board = boards.board("android_arm64_baseline")
    with pytest.raises(
        UsageError,
        match=(
            "Build edgeexport/runtime/native_runner/runner.cpp with the Android NDK"
            " .*EDGEEXPORT_ANDROID_RUNNER=/path"
        ),
    ):
        runner.runner_files(board)
    monkeypatch.setenv(runner.ANDROID_RUNNER, str(tmp_path / "none"))
    with pytest.raises(UsageError, match="there is no such file"):
        runner.runner_files(board)
    program(tmp_path, "none", "exit 0")
    with pytest.raises(UsageError, match="which is no program for aarch64"):
        runner.runner_files(board)


@pytest.mark.parametrize(
    "text",
    [
        "aoti",
        "native",
        "native@raspberry_pi_5",
        "native@raspberry_pi_5=ssh://pi@raspberrypi.local:22",
        "native@/a/b.toml=adb:",
        "native@b=adb://192.168.0.9:5555",
    ],
)
def test_a_runtime_is_written_as_it_is_read(text):
    found = Runtime.of(text)
    assert str(found) == text and found.emulated == (text == "native@raspberry_pi_5")
    assert found.at == {True: text.partition("=")[2], False: ""}["=" in text]


def test_wrong_use(toy_artifact, tmp_path, monkeypatch):
    for options, said in (
        (["--at", "adb:"], "--at needs the --board"),
        (["--at", "adb:", "--emulate", "--board", "raspberry_pi_5"], "cannot both be"),
        (["--at", "", "--board", "raspberry_pi_5"], "is no address of a device"),
        (["--at", "pi@raspberrypi", "--board", "raspberry_pi_5"], "Write ssh://USER@HOST"),
    ):
        with pytest.raises(UsageError, match=said):
            command.main([str(toy_artifact.path), *options], standalone_mode=False)
    for url in (
        "ssh://",
        "ssh://-oProxyCommand=x",
        "ssh://a:b@c",
        "ssh://pi/x",
        "ssh://pi:99999",
        "adb://-x",
        "adb:a b",
        "telnet://x",
        "ssh",
    ):
        with pytest.raises(UsageError, match="is no address"):
            remote.kind_of(url)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UsageError, match="'ssh' is not there.*apt install openssh-client"):
        remote.Ssh("ssh://pi")
    with pytest.raises(UsageError, match="'adb' is not there.*apt install adb"):
        remote.Adb("adb:")
