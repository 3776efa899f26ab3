"""Real devices: the native runner on a board that is reached over ssh or adb.

What is constant (the runner with its libraries, a program) is kept on the device in a folder named
by the sha256 of its content, and sent only when it is not there. What belongs to a session
(tensors) is in a folder that the device removes when the runner ends, whatever ended it.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
import secrets
import subprocess
import tempfile
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path
from shlex import quote
from typing import Any, BinaryIO
from urllib.parse import urlsplit

from edgeexport.errors import RuntimeFault, UsageError
from edgeexport.runtime.boards import Board
from edgeexport.runtime.runner import NAME, runner_files, tool

CONNECT_LIMIT_S = 10
COMMAND_LIMIT_S = 60.0
SLOWEST_BYTES_PER_S = 250_000
"""A transfer, or a reading of what was sent, may take COMMAND_LIMIT_S and its bytes at this rate.
"""

KINDS = ("ssh", "adb")


class Transport:
    """A way to a device: shell commands that run there, and files.

    Subclasses say how; `root` is their folder there, as text for its shell.
    """

    url: str
    root: str

    def command(self, script: str) -> list[str]:
        """What to start here so that `script` runs there, in sh, with its standard input and
        output.
        """
        raise NotImplementedError

    def push(self, local: Path, remote: str) -> None:
        """Send a file. Raises RuntimeFault."""
        raise NotImplementedError

    def pull(self, remote: str, local: Path) -> None:
        """Fetch a file. Raises RuntimeFault."""
        raise NotImplementedError

    def alive(self) -> bool:
        """Whether the device still answers."""
        raise NotImplementedError

    def remove(self, folder: str) -> None:
        """Remove a folder there, if there is one. Raises RuntimeFault."""
        self.run(f"rm -rf {quote(folder)}", f"remove {folder}")

    def run(self, script: str, what: str, size_bytes: int = 0) -> str:
        """What `script` prints.

        Raises RuntimeFault that says `what` it was for; `size_bytes` is what it has to read.
        """
        return self._do(self.command(script), what, size_bytes).decode(errors="replace")

    def _do(
        self,
        command: list[str],
        what: str,
        size_bytes: int = 0,
        source: BinaryIO | None = None,
        to: BinaryIO | None = None,
    ) -> bytes:
        limit_s = COMMAND_LIMIT_S + size_bytes / SLOWEST_BYTES_PER_S
        try:
            done = subprocess.run(
                command,
                stdin=source or subprocess.DEVNULL,
                stdout=to or subprocess.PIPE,
                stderr=subprocess.PIPE,
                timeout=limit_s,
            )
        except subprocess.TimeoutExpired as error:
            raise RuntimeFault(f"{self.url} did not {what} within {limit_s:.0f} s.") from error
        if done.returncode != 0:
            raise RuntimeFault(self._why(what, _last_line(done.stderr)))
        return done.stdout or b""

    def _why(self, what: str, said: str) -> str:
        if "No space left" in said:
            return (
                f"There is no room on {self.url} to {what} ({said}). Free some: programs that were checked"
                f" there before are in {self.root}."
            )
        if not self.alive():
            return f"The connection to {self.url} was lost; it could not {what} ({said})."
        return f"{self.url} could not {what}: {said}"


class Ssh(Transport):
    """A device behind the `ssh` program: one connection that every command shares, and that never
    asks for anything.
    """

    root = "${XDG_CACHE_HOME:-$HOME/.cache}/edgeexport"

    ADVICE = {
        "Permission denied": (
            "it takes no key of yours. Put one there (ssh-copy-id), or name it in ~/.ssh/config; a password"
            " is never asked for"
        ),
        "Host key verification failed": (
            "its host key is not known, or another than before. Connect once by hand with ssh, and look at"
            " what it says"
        ),
        "Could not resolve": (
            "no machine of this name is known. Give its address instead, or see that both are in one network"
        ),
        "Connection refused": (
            "no SSH server listens there. Start one (Raspberry Pi OS: sudo raspi-config, Interface Options,"
            " SSH), or give another port"
        ),
        "timed out": "nothing answers there. Is it on, and in the same network?",
        "No route to host": "nothing answers there. Is it on, and in the same network?",
    }
    """By what ssh says."""

    def __init__(self, url: str):
        """Connects. Raises UsageError when that fails."""
        self.url = _ssh_url(url)
        self._ssh = tool("ssh", "openssh-client")
        self._home = tempfile.TemporaryDirectory(prefix="edgeexport-ssh-")
        self._socket = str(
            Path(self._home.name) / "s"
        )  # a short name: sockets' paths are limited to about 100 characters
        weakref.finalize(self, _leave, [self._ssh, "-S", self._socket, "-O", "exit", self.url], self._home)
        self._connect()

    def _connect(self) -> None:
        """The shared connection, in the background: it notices within 15 s that the device is gone,
        and ends by itself 60 s after its last use.
        """
        settings = {
            "BatchMode": "yes",
            "ConnectTimeout": CONNECT_LIMIT_S,
            "ServerAliveInterval": 5,
            "ServerAliveCountMax": 3,
            "LogLevel": "ERROR",
        }
        settings |= {"ControlPersist": 60, "ClearAllForwardings": "yes", "RemoteCommand": "none"}
        said = (
            Path(self._home.name) / "said"
        )  # a file and no pipe: what goes to the background would hold a pipe open
        with open(said, "wb") as stream:
            command = [self._ssh, "-f", "-N", "-M", "-S", self._socket, *_options(settings), self.url]
            try:
                done = subprocess.run(
                    command, stdin=subprocess.DEVNULL, stdout=stream, stderr=stream, timeout=COMMAND_LIMIT_S
                )
            except subprocess.TimeoutExpired as error:
                raise UsageError(
                    f"{self.url} cannot be reached: no connection within {COMMAND_LIMIT_S:.0f} s."
                ) from error
        if done.returncode != 0:
            words = said.read_text(errors="replace")
            advice = next((f": {advice}" for sign, advice in self.ADVICE.items() if sign in words), "")
            raise UsageError(f"{self.url} cannot be reached{advice} ({_last_line(words.encode())}).")

    def command(self, script: str) -> list[str]:
        # With the shared connection gone ssh would make another; the proxy that fails at once
        # forbids it.
        settings = {
            "BatchMode": "yes",
            "ControlMaster": "no",
            "ProxyCommand": "false",
            "LogLevel": "ERROR",
            "RemoteCommand": "none",
        }
        return [self._ssh, "-T", "-S", self._socket, *_options(settings), self.url, f"sh -c {quote(script)}"]

    def push(self, local: Path, remote: str) -> None:
        with open(local, "rb") as source:
            self._do(
                self.command(f"cat > {quote(remote)}"),
                f"take {Path(remote).name}",
                local.stat().st_size,
                source=source,
            )

    def pull(self, remote: str, local: Path) -> None:
        with open(local, "wb") as to:
            self._do(self.command(f"cat {quote(remote)}"), f"give {Path(remote).name}", to=to)

    def alive(self) -> bool:
        return _ask([self._ssh, "-S", self._socket, "-O", "check", self.url]).returncode == 0


class Adb(Transport):
    """An Android device behind the `adb` program."""

    root = "/data/local/tmp/edgeexport"

    ADVICE = {
        "unauthorized": (
            "accept this computer on its screen (unlock it; the question comes up when it is plugged in)"
        ),
        "offline": "unplug it and plug it in again, or run: adb reconnect offline",
        "no permissions": (
            "this user may not use the USB device: on Debian, apt install android-sdk-platform-tools-common,"
            " then plug it in again"
        ),
    }
    """By the state that `adb devices` shows."""

    def __init__(self, url: str):
        """Chooses the device. Raises UsageError when it is not there or not ready."""
        self._adb = tool("adb", "adb")
        self._serial = self._choose(_adb_serial(url))
        self.url = f"adb://{self._serial}"

    def _choose(self, serial: str) -> str:
        done = _ask([self._adb, "devices"])
        if done.returncode != 0:
            raise UsageError(f"adb does not work: {_last_line(done.stderr.encode())}.")
        states = dict(line.split("\t", 1) for line in done.stdout.splitlines() if "\t" in line)
        there = (
            ", ".join(sorted(states))
            or "none: plug one in, with USB debugging switched on in its developer options"
        )
        if not serial and len(states) != 1:
            raise UsageError(
                f"adb: means the only device, and {len(states)} are there ({there}). "
                + "Name one: adb://SERIAL." * bool(states)
            )
        serial = serial or next(iter(states))
        if serial not in states:
            raise UsageError(f"There is no device {serial}. adb sees: {there}.")
        if states[serial] != "device":
            advice = next(
                (advice for sign, advice in self.ADVICE.items() if sign in states[serial]),
                "it must be 'device'",
            )
            raise UsageError(f"The device {serial} is '{states[serial]}': {advice}.")
        return serial

    def command(self, script: str) -> list[str]:
        return [self._adb, "-s", self._serial, "shell", "-T", f"sh -c {quote(script)}"]

    def push(self, local: Path, remote: str) -> None:
        self._do(
            [self._adb, "-s", self._serial, "push", str(local), remote],
            f"take {Path(remote).name}",
            local.stat().st_size,
        )

    def pull(self, remote: str, local: Path) -> None:
        self._do([self._adb, "-s", self._serial, "pull", remote, str(local)], f"give {Path(remote).name}")

    def alive(self) -> bool:
        return _ask([self._adb, "-s", self._serial, "get-state"]).stdout.strip() == "device"


class Device:
    """A board that answers, and is what its file says; files are kept on it by their content."""

    def __init__(self, board: Board, url: str):
        """Connects. Raises UsageError: it does not answer, or is another."""
        self.transport = Ssh(url) if kind_of(url) == "ssh" else Adb(url)
        self.root = self.transport.root = self._verify(board)

    def _verify(self, board: Board) -> str:
        """The folder on the device, made if it is not there and rid of what was cut off days
        ago.
        """
        root = self.transport.root
        script = (
            "uname -sm; getconf LONG_BIT 2>/dev/null || echo 64; grep -m 1 -E '^(Features|flags)'"
            f' /proc/cpuinfo || echo; mkdir -p "{root}" && cd "{root}" && pwd && find . ! -name . -prune'
            " '(' -name 'session-*' -o -name '*.partial-*' ')' -mtime +0 -exec rm -rf {} +"
        )
        *_, machine, bits, features, folder = (
            self.transport.run(script, "say what it is").strip().splitlines()
        )
        if machine != f"Linux {board.arch}":
            raise UsageError(
                f"{self.transport.url} is '{machine}', and the board {board.name} 'Linux {board.arch}': it is"
                " another device."
            )
        if bits != "64":
            raise UsageError(
                f"{self.transport.url} has a {bits}-bit system on its 64-bit kernel: install the 64-bit one."
            )
        missing = sorted(set(board.isa) - set(features.partition(":")[2].split()))
        if missing:
            raise UsageError(
                f"The CPU of {self.transport.url} lacks {', '.join(missing)}, which the board {board.name}"
                " has: it is another device."
            )
        return folder

    def machine(self) -> dict[str, Any]:
        """What the device says of its CPU (or else the device's name), cores, memory and system.

        Raises RuntimeFault.
        """
        script = (
            "nproc 2>/dev/null || grep -c ^processor /proc/cpuinfo; grep MemTotal /proc/meminfo; uname -srm;"
            " grep -m 1 '^model name' /proc/cpuinfo || cat /proc/device-tree/model 2>/dev/null || getprop"
            " ro.product.model 2>/dev/null || echo"
        )
        *_, cores, memory, system, cpu = self.transport.run(script, "say what it has").splitlines()
        cpu = cpu.rpartition(": ")[2].strip("\0 ") or "a CPU that gives no name"
        return {
            "cpu": cpu,
            "cores": int(cores),
            "memory_bytes": int(memory.split()[1]) * 1024,
            "system": system.strip(),
        }

    def keep(self, files: Mapping[str, Path]) -> str:
        """The folder on the device with these files, by name; sent if they are not all there as
        they are here. Raises RuntimeFault.
        """
        sums = {name: _sha256(path) for name, path in sorted(files.items())}
        size_bytes = sum(path.stat().st_size for path in files.values())
        folder = f"{self.root}/{hashlib.sha256(repr(sums).encode()).hexdigest()}"
        first = next(iter(files))
        if self._sums(folder, first, size_bytes) == sums:
            return folder
        partial = f"{folder}.partial-{secrets.token_hex(4)}"
        try:
            self.transport.run(f"mkdir {quote(partial)}", f"make a folder for {first}")
            for name, path in files.items():
                self.transport.push(path, f"{partial}/{name}")
            if self._sums(partial, first, size_bytes) != sums:
                raise RuntimeFault(
                    f"What {self.transport.url} holds after the transfer of {', '.join(files)} is not what"
                    " was sent."
                )
            script = (
                f"chmod 755 {quote(partial)}/* && rm -rf {quote(folder)} && mv {quote(partial)}"
                f" {quote(folder)}"
            )
            self.transport.run(script, f"put {first} in its place")
        except BaseException:
            with contextlib.suppress(
                RuntimeFault
            ):  # the device may be gone; what is left there is removed by a later session
                self.transport.remove(partial)
            raise
        return folder

    def _sums(self, folder: str, first: str, size_bytes: int) -> dict[str, str]:
        """The sha256 of each file in a folder on the device (`first` is one of them); none when
        there is no such folder.
        """
        script = f"cd {quote(folder)} 2>/dev/null || exit 0; sha256sum -- *"
        lines = (
            line.split(maxsplit=1)
            for line in self.transport.run(script, f"verify {first}", size_bytes).splitlines()
        )
        return {name: digest for digest, name in lines}


class There:
    """A device as the place where a runner runs: what `native.Here` is for this machine."""

    def __init__(self, board: Board, url: str):
        """Connects, and sends the runner if it is not there. Raises UsageError, RuntimeFault."""
        if board.reach not in ("", kind_of(url)):
            raise UsageError(
                f"The board {board.name} is reached by {board.reach}, and {url} is for {kind_of(url)}."
            )
        files = runner_files(board)  # before the connection, which would not wait while it is built
        self._device = Device(board, url)
        self._transport = self._device.transport
        self._runner = self._device.keep(files)
        self._folder = f"{self._device.root}/session-{secrets.token_hex(8)}"
        self._home = tempfile.TemporaryDirectory(prefix="edgeexport-device-")
        self.scratch = Path(self._home.name)

    def command(self, options: Sequence[str]) -> list[str]:
        """What starts the runner there, in a shell that makes the session's folder, and removes it
        when the runner ends.

        The runner ends with its input, so with the connection; the shell writes down its own
        number, to be ended by `close`.
        """
        runner = quote(self._runner)
        script = f"""
            folder={quote(self._folder)}
            mkdir "$folder" && echo $$ > "$folder/pid" || exit
            runner=
            trap '[ -z "$runner" ] || kill -9 $runner; rm -rf "$folder"' EXIT
            trap 'exit 1' HUP INT TERM
            exec 3<&0  # what runs in the background gets no input unless it is given one
            LD_LIBRARY_PATH={runner} {runner}/{NAME} {" ".join(map(quote, options))} <&3 3<&- &
            runner=$!
            wait $runner
            code=$?
            runner=
            exit $code
        """
        return self._transport.command(script)

    def program(self, path: Path) -> str:
        """Where the runner finds a program: sent if it is not there. Raises RuntimeFault."""
        return f"{self._device.keep({path.name: path})}/{path.name}"

    def path(self, name: str) -> str:
        """Where the runner is to write a file of the session."""
        return f"{self._folder}/{name}"

    def write(self, name: str, content: bytes) -> str:
        """A file of the session, for the runner to read; once it has answered, the folder is there.

        Raises RuntimeFault.
        """
        (self.scratch / name).write_bytes(content)
        self._transport.push(self.scratch / name, self.path(name))
        return self.path(name)

    def read(self, path: str) -> bytes:
        """A file of the session that the runner wrote. Raises RuntimeFault."""
        local = self.scratch / Path(path).name
        self._transport.pull(path, local)
        return local.read_bytes()

    def lost(self) -> str:
        """What became of the connection; nothing when it is there."""
        return "" if self._transport.alive() else f"was lost with the connection to {self._transport.url}"

    def close(self) -> None:
        """Ends the runner if it still runs, and removes the session's folder."""
        with contextlib.suppress(
            RuntimeFault
        ):  # without a connection the runner ends by itself, and its shell removes the folder
            pid = quote(f"{self._folder}/pid")
            self._transport.run(
                f"[ ! -f {pid} ] || kill $(cat {pid}); rm -rf {quote(self._folder)}", "end the session"
            )
        self._home.cleanup()


def kind_of(url: str) -> str:
    """`ssh` or `adb`. Raises UsageError for an address that is neither."""
    kind = url.partition(":")[0]
    if kind not in KINDS or ":" not in url:
        raise UsageError(
            f"'{url}' is no address of a device. Write ssh://USER@HOST, ssh://HOST:PORT, adb://SERIAL, or"
            " adb: for the only device."
        )
    (_ssh_url if kind == "ssh" else _adb_serial)(url)
    return kind


def _ssh_url(url: str) -> str:
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise UsageError(f"'{url}' is no address: {error}.") from error
    if (
        not parts.hostname
        or parts.hostname.startswith("-")
        or parts.path not in ("", "/")
        or parts.query
        or parts.fragment
        or parts.password
        or port == 0
    ):
        raise UsageError(f"'{url}' is no address of a device. Write ssh://USER@HOST or ssh://USER@HOST:PORT.")
    return url.rstrip("/")


def _adb_serial(url: str) -> str:
    serial = url.removeprefix("adb:").removeprefix("//")
    if not re.fullmatch(r"([\w\[][\w.:%\[\]-]*)?", serial):
        raise UsageError(
            f"'{url}' is no address of a device. Write adb://SERIAL (adb devices shows it), or adb: for the"
            " only one."
        )
    return serial


def _options(settings: Mapping[str, object]) -> list[str]:
    return [word for key, value in settings.items() for word in ("-o", f"{key}={value}")]


def _ask(command: list[str]) -> subprocess.CompletedProcess[str]:
    """What a program says at once, of itself. Raises UsageError when it does not."""
    try:
        return subprocess.run(
            command, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=COMMAND_LIMIT_S
        )
    except subprocess.TimeoutExpired as error:
        raise UsageError(f"'{' '.join(command)}' did not answer within {COMMAND_LIMIT_S:.0f} s.") from error


def _leave(command: list[str], home: tempfile.TemporaryDirectory) -> None:
    subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    home.cleanup()


def _last_line(said: bytes) -> str:
    lines = said.decode(errors="replace").strip().splitlines()
    return lines[-1].strip() if lines else "it said nothing"


def _sha256(path: Path) -> str:
    with open(path, "rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
