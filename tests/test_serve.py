"""Serving: the HTTP application by itself, then behind Ray with many clients, a killed replica and
a drain.
"""

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import psutil
import pytest
import torch

import edgeexport

fastapi = pytest.importorskip(
    "fastapi", reason="the extra [serve] is not installed: pip install 'edgeexport[serve]'"
)
httpx = pytest.importorskip("httpx")

from fastapi.testclient import TestClient  # noqa: E402
from safetensors.torch import load, save  # noqa: E402

from edgeexport.ship.serve.app import make_app  # noqa: E402
from edgeexport.ship.serve.engine import RAY_SETTINGS  # noqa: E402
from edgeexport.ship.serve.wire import JSON, SAFETENSORS  # noqa: E402
from edgeexport.ship.serve.worker import Call, grouped, run_together, split  # noqa: E402

BINARY = {"content-type": SAFETENSORS, "accept": SAFETENSORS}


def image(seed=0, batch=1):
    return torch.randn(batch, 3, 16, 16, generator=torch.Generator().manual_seed(seed))


@pytest.fixture(scope="module")
def program(toy_both):
    return edgeexport.open(toy_both[1].path)


@pytest.fixture(scope="module")
def client(toy_both):
    with TestClient(make_app(str(toy_both[1].path), max_body_bytes=100_000)) as client:
        yield client


@pytest.fixture(scope="module")
def writer(text_both):
    with TestClient(make_app(str(text_both[1].path))) as client:
        yield client


def test_a_method_takes_and_gives_json_and_safetensors(client, program):
    x = image(1, batch=2)
    (want,) = program["classify"](x)
    said = client.post("/methods/classify", json={"image": x.tolist()})
    torch.testing.assert_close(torch.tensor(said.json()["logits"]), want, atol=1e-6, rtol=0)
    said = client.post("/methods/classify", content=save({"image": x}), headers=BINARY)
    assert said.headers["content-type"] == SAFETENSORS and torch.equal(load(said.content)["logits"], want)


def test_health_readiness_manifest_and_the_api_page(client):
    assert client.get("/healthz").status_code == 200
    assert client.get("/readyz").json()["methods"] == ["classify"]
    assert client.get("/manifest").json()["model"]["name"] == "toy"
    api = client.get("/openapi.json").json()
    assert (
        "a small image" in api["paths"]["/methods/classify"]["post"]["description"]
        and "RANDOM" in api["info"]["description"]
    )
    assert client.get("/docs").status_code == 200


@pytest.mark.parametrize(
    ("body", "kind", "status", "said"),
    [
        (b"{", JSON, 422, "not JSON"),
        (b"\xff\xfe", JSON, 422, "not JSON"),
        (b"[" * 100_000, JSON, 422, "not JSON"),
        (b"[1, 2]", JSON, 422, "an object of tensors by name"),
        (b'{"image": [[1], [1, 2]]}', JSON, 422, "nested lists of numbers"),
        (b'{"image": "x"}', JSON, 422, "nested lists of numbers"),
        (b"{}", JSON, 422, "there is no image"),
        (b'{"image": [[1.0]]}', JSON, 422, "must have 4 dimensions"),
        (json.dumps({"image": image().tolist(), "other": [1]}).encode(), JSON, 422, "takes no other"),
        (json.dumps({"image": (image() * float("nan")).tolist()}).encode(), JSON, 422, "not finite"),
        (save({"image": image() / 0.0}), SAFETENSORS, 422, "not finite"),
        (save({"image": image().double()}), SAFETENSORS, 422, "must be float32, not float64"),
        (save({"image": image(batch=4)}), SAFETENSORS, 422, "batch = 4.*takes 1 to 3"),
        (b"\x08\x00\x00\x00\x00\x00\x00\x00garbage!", SAFETENSORS, 422, "not in the safetensors format"),
        (b"", SAFETENSORS, 422, "not in the safetensors format"),
        (b"x", "text/plain", 422, "are taken"),
        (b"0" * 200_000, JSON, 413, "at most 100000"),
    ],
    ids=[
        "half an object",
        "no text",
        "nested too deep",
        "a list",
        "ragged",
        "a word for a tensor",
        "nothing",
        "two dimensions",
        "one tensor more",
        "not a number",
        "infinite",
        "float64",
        "batch of 4",
        "garbage",
        "empty",
        "another kind",
        "too long",
    ],
)
def test_what_is_wrong_is_said_and_the_server_goes_on(client, body, kind, status, said):
    answer = client.post("/methods/classify", content=body, headers={"content-type": kind})
    assert answer.status_code == status and re.search(said, answer.json()["error"]), answer.text
    assert client.get("/healthz").status_code == 200


def test_a_long_body_that_does_not_say_its_length_is_refused(client):
    answer = client.post(
        "/methods/classify", content=(b"0" * 10_000 for _ in range(20)), headers={"content-type": JSON}
    )
    assert answer.status_code == 413
    assert (
        client.post("/methods/other", json={}).status_code == 404
        and client.get("/methods/classify").status_code == 405
    )


def test_state_goes_out_and_comes_back_so_any_replica_can_go_on(writer, text_both):
    program = edgeexport.open(text_both[1].path)
    x = torch.randn(1, 256, 32, generator=torch.Generator().manual_seed(1))
    crossed = load(writer.post("/methods/encode", content=save({"x": x}), headers=BINARY).content)
    sound = [crossed[name] for name in ("cross_keys_0", "cross_values_0")]  # a file of tensors has no order
    prompt = {"tokens": torch.tensor([[3, 1, 4]]), "position": torch.tensor([0]), **crossed}
    first = load(writer.post("/methods/prefill", content=save(prompt), headers=BINARY).content)
    state = {name: first[name] for name in ("cache.keys", "cache.values")}
    step = {"token": torch.tensor([[1]]), "position": torch.tensor([3]), **crossed}
    second = load(writer.post("/methods/decode_step", content=save(step | state), headers=BINARY).content)
    program["prefill"](prompt["tokens"], prompt["position"], *sound)
    assert torch.equal(second["logits"], program["decode_step"](step["token"], step["position"], *sound)[0])
    half = writer.post(
        "/methods/decode_step", content=save(step | {"cache.keys": state["cache.keys"]}), headers=BINARY
    )
    assert half.status_code == 422 and "give all of it, or none" in half.json()["error"]
    short = {name: tensor[:1].contiguous() for name, tensor in state.items()}
    wrong = writer.post("/methods/decode_step", content=save(step | short), headers=BINARY)
    assert wrong.status_code == 422 and "must be float32 [2, 12, 16]" in wrong.json()["error"]


def test_calls_that_meet_are_one_call_and_get_their_own_rows(program):
    images = [image(1, 1), image(2, 2), image(3, 3), image(4, 1)]
    assert grouped([Call((x,), len(x)) for x in images], 3) == [[0, 1], [2], [3]]
    answers = run_together(program["classify"], [Call((x,), len(x)) for x in images], 3)
    for x, (got,) in zip(images, answers):
        torch.testing.assert_close(got, program["classify"](x)[0], atol=1e-6, rtol=0)


def test_calls_of_other_sizes_do_not_meet_and_outputs_that_cannot_be_divided_are_an_error():
    calls = [Call((torch.zeros(1, 5),), 1), Call((torch.zeros(1, 6),), 1), Call((torch.zeros(1, 5),), 1)]
    assert grouped(calls, 8) == [[0, 2], [1]]
    heads_first = torch.arange(6.0).reshape(6, 1)
    assert [parts[0].flatten().tolist() for parts in split([heads_first], [1, 2])] == [
        [0.0, 1.0],
        [2.0, 3.0, 4.0, 5.0],
    ]
    with pytest.raises(edgeexport.EdgeExportError, match="cannot be divided"):
        split([torch.zeros(4, 1)], [1, 2])


def test_a_failing_batch_is_an_error_for_each_of_its_requests(program):
    class Broken:
        def execute(self, tensors):
            raise RuntimeError("broken")

    answers = run_together(Broken(), [Call((image(),), 1)] * 2, 3)
    assert [str(a) for a in answers] == ["broken", "broken"]


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@contextlib.contextmanager
def serving(artifact, folder, *options, environment=None):
    """`edgeexport serve` until the end of the block: (base URL, metrics URL, process)."""
    ports, log = (free_port(), free_port()), folder / "log"
    command = [
        sys.executable,
        "-m",
        "edgeexport",
        "serve",
        artifact,
        "--replicas",
        "2",
        "--port",
        ports[0],
        "--metrics-port",
        ports[1],
        *options,
    ]
    with open(log, "w") as stream:
        process = subprocess.Popen(
            [str(c) for c in command], stdout=stream, stderr=subprocess.STDOUT, env=environment
        )
    process.log = log
    deadline = time.monotonic() + 180
    while "Serving" not in log.read_text():
        assert process.poll() is None and time.monotonic() < deadline, log.read_text()
        time.sleep(0.5)
    yield *(f"http://127.0.0.1:{port}" for port in ports), process
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
        process.wait(90)


@pytest.fixture(scope="module")
def served(toy_both, tmp_path_factory):
    """An archive with two replicas."""
    folder = tmp_path_factory.mktemp("serve")
    with serving(
        edgeexport.bundle([a.path for a in toy_both], folder / "toy.pt2"), folder, "--queue", "400"
    ) as served:
        yield served


def ask(client, base, seed):
    """(status, whether the answer is right); a lost connection is an error that the client sees."""
    x = image(seed)
    try:
        answer = client.post(
            f"{base}/methods/classify", content=save({"image": x}), headers=BINARY, timeout=60
        )
    except httpx.HTTPError as error:
        return type(error).__name__, None
    return answer.status_code, load(answer.content)["logits"] if answer.status_code == 200 else answer.text


def many(base, program, count, during=lambda: None):
    """Statuses of `count` requests of 32 clients; every answer that came is held against the
    program's own.
    """
    with httpx.Client(limits=httpx.Limits(max_connections=64)) as client, ThreadPoolExecutor(32) as pool:
        asked = [pool.submit(ask, client, base, seed) for seed in range(count)]
        during()
        said = [each.result() for each in asked]
    for seed, (status, answer) in enumerate(said):
        if status == 200:
            torch.testing.assert_close(answer, program["classify"](image(seed))[0], atol=1e-5, rtol=0)
    return [status for status, _ in said]


@pytest.mark.toolchain
def test_ray_waits_for_its_proxy_on_a_busy_machine(served):
    """Its 5 s are over before the process has begun, where others compute; serving then failed."""
    _, _, process = served
    (controller,) = [
        p
        for p in psutil.Process(process.pid).children(recursive=True)
        if "ServeController" in " ".join(p.cmdline())
    ]
    assert controller.environ()["RAY_SERVE_PROXY_READY_CHECK_TIMEOUT_S"] == "60"


@pytest.mark.toolchain
def test_the_addresses_that_are_printed_are_those_that_are_listened_on(served):
    base, metrics, process = served
    (said,) = (line for line in process.log.read_text().splitlines() if line.startswith("Serving"))
    listening = {
        c.laddr.port: c.laddr.ip
        for p in psutil.Process(process.pid).children(recursive=True)
        for c in p.net_connections("tcp")
        if c.status == psutil.CONN_LISTEN
    }
    for url, what in ((base, "at"), (metrics, "metrics:")):
        port = int(url.rpartition(":")[2])
        assert f"{what} http://{listening[port].replace('::', '0.0.0.0')}:{port}" in said


@pytest.mark.toolchain
def test_many_clients_get_their_own_right_answers(served, program):
    base, metrics, _ = served
    assert many(base, program, 300) == [200] * 300
    assert httpx.get(f"{base}/readyz").json()["batched"] == ["classify"]
    deadline = time.monotonic() + 30
    while "ray_serve_num_http_requests" not in (page := httpx.get(f"{metrics}/metrics").text):
        assert time.monotonic() < deadline, page[:2000]
        time.sleep(1)


@pytest.mark.toolchain
def test_a_killed_replica_loses_no_request_without_an_error(served, program):
    base, _, process = served
    replicas = [
        p
        for p in psutil.Process(process.pid).children(recursive=True)
        if "ServeReplica:edgeexport" in " ".join(p.cmdline())
    ]
    assert len(replicas) == 2
    statuses = many(base, program, 600, during=lambda: (time.sleep(0.3), replicas[0].kill()))
    assert len(statuses) == 600 and statuses.count(200) > 300
    assert set(statuses) <= {200, 500, 503}, "an error is a status, not a lost connection"
    deadline = time.monotonic() + 60
    while many(base, program, 20) != [200] * 20:
        assert time.monotonic() < deadline, "the service comes back"


@pytest.mark.toolchain
def test_it_drains(served):
    base, _, process = served
    with httpx.Client() as client, ThreadPoolExecutor(8) as pool:
        asked = [pool.submit(ask, client, base, seed) for seed in range(8)]
        [each.result() for each in asked[:4]]
        process.send_signal(signal.SIGTERM)
        statuses = [each.result()[0] for each in asked]
    assert process.wait(90) == 0 and set(statuses) <= {200, 503, 404, "ConnectError"}
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"{base}/healthz")


CLUSTER = """
import sys
from ray.cluster_utils import Cluster

cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
cluster.add_node(num_cpus=1)
print("address", cluster.address, flush=True)
sys.stdin.read()
cluster.shutdown()
"""
REPLICAS = """
import ray, sys
ray.init(address=sys.argv[1], log_to_driver=False, logging_level="error")
nodes = [a["Address"]["NodeID"] for a in ray._private.state.actors().values() if a["State"] == "ALIVE" and a["ActorClassName"].startswith("ServeReplica")]
print(len(nodes), len(set(nodes)), len(ray.nodes()))
"""  # noqa: E501


@pytest.fixture
def cluster():
    """(address, environment) of a cluster of two nodes with one CPU each, both on this machine."""
    environment = {**os.environ, **RAY_SETTINGS, "RAY_AUTH_MODE": "disabled"}
    process = subprocess.Popen(
        [sys.executable, "-c", CLUSTER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=environment,
    )
    address = next((line.split()[1] for line in process.stdout if line.startswith("address ")), None)
    assert address, "no cluster could be started"
    yield address, environment
    process.communicate("")
    assert process.returncode == 0


@pytest.mark.toolchain
def test_replicas_are_spread_over_the_nodes_of_a_cluster_which_goes_on_afterwards(
    cluster, toy_both, program, tmp_path
):
    address, environment = cluster

    def replicas():
        said = subprocess.run(
            [sys.executable, "-c", REPLICAS, address], capture_output=True, text=True, env=environment
        )
        assert said.returncode == 0, said.stderr
        return said.stdout.split()

    with serving(toy_both[1].path, tmp_path, "--address", address, environment=environment) as (base, _, _):
        assert many(base, program, 50) == [200] * 50
        assert replicas() == ["2", "2", "2"], "two replicas on two of two nodes"
    assert replicas() == ["0", "0", "2"]


@pytest.mark.toolchain
def test_a_taken_port_a_phone_artifact_and_no_artifact_are_refused(toy_both, tmp_path):
    def run(*arguments):
        done = subprocess.run(
            [sys.executable, "-m", "edgeexport", "serve", *map(str, arguments)],
            capture_output=True,
            text=True,
            env={**os.environ, "RAY_ADDRESS": ""},
        )
        assert done.returncode == 2 and "Traceback" not in done.stderr, done.stderr
        return done.stderr

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        assert "cannot be used (Address already in use)" in run(
            toy_both[1].path, "--port", taken.getsockname()[1]
        )
    assert "build it with --target aoti" in run(toy_both[0].path)
    assert "is not an artifact" in run(tmp_path)
