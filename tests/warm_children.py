"""Children of tests that need not import PyTorch again, which takes seconds each time.

The package starts its children as `python -m edgeexport...`. In tests `sys.executable` is this
file's client: it hands its arguments, folder, environment and standard streams to a server that has
imported what children import, and forks for each. A child is still a process of its own: it can
crash, and nothing of it stays. The real interpreter runs all else: other commands, `edgeexport`
itself, and children with other settings of Python or its libraries.

EDGEEXPORT_TEST_CHILDREN=cold does without all this, as `scripts/test --all` does.
"""

import array
import contextlib
import fcntl
import json
import os
import select
import signal
import socket
import struct
import sys

READ_AT_THE_START = (
    "PYTHON",
    "LD_",
    "MALLOC_",
    "OMP_",
    "GOMP_",
    "KMP_",
    "MKL_",
    "OPENBLAS_",
    "TORCH_",
    "ATEN_",
)
"""How variables begin that are read when Python begins or a library is loaded.

Those of a warm child are the server's, so they must not differ. Of the others it has its own.
"""

OF_THE_PACKAGE = ("edgeexport.", "test_warm_children")
"""How modules that are children begin; the latter is for this file's own test."""

PACKAGES = ("edgeexport.artifact", "edgeexport.runtime", "edgeexport.verify.checks")
"""What children import first, whatever they do."""


def client(python, folder, parent, arguments):
    """Have the server do it, or become the real interpreter."""
    if arguments[:1] != ["-m"] or not arguments[1].startswith(OF_THE_PACKAGE):
        os.execv(python, [python, *arguments])
    with open(f"{folder}/lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not os.path.exists(f"{folder}/socket"):
            _start(python, folder, parent)
    with open(f"{folder}/environment.json") as file:
        server = json.load(file)
    differing = {name for name in server.keys() | os.environ if server.get(name) != os.environ.get(name)}
    if any(name.startswith(READ_AT_THE_START) for name in differing):
        os.execv(python, [python, *arguments])
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(f"{folder}/socket")
    _send(
        connection,
        {"arguments": arguments, "folder": os.getcwd(), "environment": dict(os.environ)},
        (0, 1, 2),
    )
    answer = connection.recv(4)
    if len(answer) < 4:
        sys.exit("the server of tests/warm_children.py ended; its log is beside its socket")
    code = struct.unpack("i", answer)[0]
    if code < 0:
        signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code)


def _start(python, folder, parent):
    """The server, listening when this returns."""
    import subprocess  # here, because the client must begin quickly

    with open(f"{folder}/environment.json", "w") as file:
        json.dump(dict(os.environ), file)
    with open(f"{folder}/log", "ab") as log:
        server = subprocess.Popen(
            [python, __file__, "server", folder, parent],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log,
            start_new_session=True,
        )
    assert server.stdout.read(1) == b"."


def serve(folder, parent):
    """Import what children do, then fork for each request; end with the process `parent`."""
    sys.path[0] = os.getcwd()
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(f"{folder}/socket")
    listening.listen(64)
    ended = os.pidfd_open(int(parent))
    os.write(1, b".")
    for package in map(importlib.import_module, PACKAGES):
        for module in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
            importlib.import_module(module.name)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while ended not in select.select([listening, ended], [], [])[0]:
        connection = listening.accept()[0]
        if os.fork() == 0:
            listening.close()
            _keep(connection)
        connection.close()


def _keep(connection):
    """Fork the child, tell the client how it ended, and end it when the client is gone."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    request, streams = _receive(connection)
    child = os.fork()
    if child == 0:
        connection.close()
        _run(request, streams)
    for file in streams:
        os.close(file)
    if connection in select.select([connection, os.pidfd_open(child)], [], [])[0]:
        os.kill(child, signal.SIGKILL)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    with contextlib.suppress(BrokenPipeError):
        connection.sendall(struct.pack("i", code))
    os._exit(0)


def _run(request, streams):
    """Be `python -m MODULE ...`."""
    for number, file in enumerate(streams):
        os.dup2(file, number)
        os.close(file)
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environment"])
    sys.path[0] = request["folder"]
    _, module, *rest = request["arguments"]
    sys.argv = [module, *rest]
    sys.modules.pop(module, None)  # it is __main__ now
    code = 1
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
        code = 0
    except SystemExit as ended:
        if isinstance(ended.code, str):
            print(ended.code, file=sys.stderr)
        else:
            code = ended.code or 0
    except BaseException:
        sys.excepthook(*sys.exc_info())
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _send(connection, request, files):
    data = json.dumps(request).encode()
    connection.sendmsg(
        [struct.pack("I", len(data))], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", files))]
    )
    connection.sendall(data)


def _receive(connection):
    """The request, and its files."""
    head, ((_, _, files),), _, _ = connection.recvmsg(4, socket.CMSG_SPACE(3 * 4))
    (wanted,), data = struct.unpack("I", head), b""
    while len(data) < wanted:
        data += connection.recv(wanted - len(data))
    return json.loads(data), array.array("i", files).tolist()


if __name__ == "__main__":
    if sys.argv[1] == "server":
        import atexit
        import importlib
        import pkgutil
        import runpy

        serve(*sys.argv[2:])
    else:
        client(*sys.argv[1:4], sys.argv[4:])
