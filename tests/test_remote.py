"""Real boards: a program is checked on a device that is reached over ssh or adb.

ssh: a real server (sshd) that the test starts on this machine, on a port of its own; the device is this machine. adb: no Android device was there;
a script that is called `adb` runs the commands in a folder of this machine and writes down its command lines, so what a phone says to them
is not tested.
"""

import getpass
import json
import os
import platform
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

import edgeexport
from edgeexport import boards
from edgeexport.errors import RuntimeFault, UsageError
from edgeexport.runtime import native, remote, runner
from edgeexport.runtime.program import Runtime

SSHD = shutil.which("sshd") or shutil.which("/usr/sbin/sshd")
needs_runner = pytest.mark.skipif(
    not shutil.which("g++") or not shutil.which("cmake"), reason="the native runner needs g++ and cmake (apt install g++ nlohmann-json3-dev; pip install cmake)"
)
needs_ssh = pytest.mark.skipif(not SSHD or not shutil.which("ssh"), reason="no sshd or ssh (apt install openssh-server openssh-client)")


def board_file(folder, name, libc="glibc", arch=platform.machine(), reach=""):
    """A board that is this machine."""
    path = folder / f"{name}.toml"
    path.write_text(
        f'summary = "this machine"\narch = "{arch}"\ncores = 2\nmemory_bytes = 2_000_000_000\nisa = []\nlibc = "{libc}"\nsources = ["none"]\n'
        '[runtime]\ntarget = "xnnpack"\nbackends = ["XnnpackBackend"]\n[budgets]\nfile_bytes = 500_000_000\nplanned_memory_bytes = 500_000_000\n'
        + (f'[reach]\nby = "{reach}"\n' if reach else "")
    )  # fmt: skip
    return str(path)


def program(path, name, text):
    """A shell script on the PATH."""
    path.mkdir(exist_ok=True)
    (path / name).write_text(f"#!/bin/sh\n{text}\n")
    (path / name).chmod(0o755)


class Server:
    """An sshd of this user, and an `ssh` on the PATH that knows its key, its identity, and writes down what it is called with."""

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
            f"Port {self.port}\nListenAddress 127.0.0.1\nHostKey {folder}/host\nAuthorizedKeysFile {folder}/authorized_keys\nPidFile none\nUsePAM no\n"
            f"StrictModes no\nPasswordAuthentication no\nKbdInteractiveAuthentication no\nPermitRootLogin yes\nSetEnv XDG_CACHE_HOME={self.cache}\n"
        )
        self.use_key("mine")
        self.log = folder / "ssh.log"
        program(folder / "bin", "ssh", f'echo "$*" | tr "\\n" " " >> {self.log}; echo >> {self.log}; exec {shutil.which("ssh")} -F {folder}/config "$@"')
        if os.getuid() == 0:
            Path("/run/sshd").mkdir(exist_ok=True)
        self.process = subprocess.Popen([SSHD, "-D", "-e", "-f", folder / "sshd_config"], stderr=open(folder / "sshd.log", "wb"))
        self._wait()

    def use_key(self, name):
        (self.folder / "config").write_text(f"IdentityFile {self.folder}/{name}\nIdentitiesOnly yes\nIdentityAgent none\nUserKnownHostsFile {self.folder}/known_hosts\n")

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
        return [line.split("cat > ")[1].strip(" '\"").rpartition("/")[2] for line in lines if "cat > " in line]


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
    return subprocess.run([sys.executable, "-m", "edgeexport", "check", str(artifact.path), *options], capture_output=True, text=True)


CONSTANT = {runner.NAME, *runner.LIBRARIES, "toy.pte"}


@needs_ssh
@needs_runner
def test_every_check_passes_over_ssh_and_a_second_run_sends_only_tensors(server, here, toy_artifact):
    done = check(toy_artifact, "--board", here, "--at", server.url, "--json")
    assert done.returncode == 0, done.stderr + done.stdout
    findings = json.loads(done.stdout)["findings"]
    assert {"loads", "operators", "numerics", "dynamic_bounds", "runners", "board"} <= {f["check"] for f in findings}
    assert len([f for f in findings if f["check"] == "numerics"]) == len(toy_artifact.methods["classify"]["cases"]), "all cases, not the least only"
    (same,) = [f for f in findings if f["check"] == "runners"]
    assert same["details"]["runtime"] == f"native@{here}={server.url}" and same["limit"].startswith("<= 1e-04")
    first, kept = server.pushed(), server.there
    assert CONSTANT <= set(first) and len([name for name in first if name in CONSTANT]) == len(CONSTANT), "each once, by the parent or the child"
    assert len(kept) == 2 and all(len(name) == 64 for name in kept), "no session is left"
    assert check(toy_artifact, "--board", here, "--at", server.url).returncode == 0
    again = server.pushed()
    assert again and set(again) == {"in0"} and server.there == kept
