"""Ray Serve: replicas, queues, drain. The scheduler is Ray's; here is only what it is told."""

from __future__ import annotations

import ipaddress
import logging
import os
import signal
import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from edgeexport.artifact.folder import Artifact, open_artifact
from edgeexport.errors import RuntimeFault, UsageError
from edgeexport.ship.serve import MAX_BODY_BYTES

NAME = "edgeexport"

EVERY_NETWORK = "0.0.0.0"

BATCH_WAIT_S = 0.005
"""How long a request waits for others to share its batch with; a call of a program takes longer
than that.
"""


RAY_SETTINGS = {
    "RAY_USAGE_STATS_ENABLED": "0",  # nothing is reported to anyone
    # By default Ray ends its HTTP proxy when that is not up after 5 s, which on a busy machine it
    # is not. A cluster has its own setting.
    "RAY_SERVE_PROXY_READY_CHECK_TIMEOUT_S": "60",
}
"""What Ray reads from the environment, where nothing else is set."""


@dataclass(frozen=True)
class Service:
    """What is served, and how: `queue` requests wait for a replica, more are refused with 503;
    `ongoing` are at a replica.
    """

    artifact: Path
    replicas: int = 1
    threads: int | None = None
    host: str = "127.0.0.1"
    port: int = 8000
    metrics_port: int = 8001
    queue: int = 256
    ongoing: int = 32
    batching: bool = True
    drain_s: float = 30.0
    max_body_bytes: int = MAX_BODY_BYTES
    address: str | None = None


def serve(service: Service, on_ready: Callable[[str, str], None]) -> None:
    """Serve until SIGTERM or Ctrl-C, then take no more requests, finish those under way, and end;
    `on_ready` gets the addresses of the server and of its metrics.

    Raises UsageError, ArtifactError.
    """
    artifact = open_artifact(service.artifact, lambda target: target.serves)
    if not artifact.target.serves:
        raise UsageError(
            f"{service.artifact} is for a phone ({artifact.program_path.name}). Serve a server package: build"
            " it with --target aoti."
        )
    _refuse_taken(service.host, service.port)
    for name, value in RAY_SETTINGS.items():
        os.environ.setdefault(name, value)
    try:
        import ray.exceptions
        from ray import serve as ray_serve
    except ImportError as error:
        raise UsageError("Serving needs Ray: pip install 'edgeexport[serve]'.") from error

    if service.address is None:
        _refuse_taken(EVERY_NETWORK, service.metrics_port)
    try:
        _connect(service)
        ray_serve.start(
            http_options={"host": service.host, "port": service.port},
            logging_config={"log_level": "ERROR", "enable_access_log": False},
        )
        ray_serve.run(_application(service, artifact), name=NAME, route_prefix="/")
        on_ready(f"http://{service.host}:{service.port}", _metrics_address(service))
        _wait_for_a_signal()
        ray_serve.delete(NAME)  # replicas finish what they have, up to drain_s
    except (ray.exceptions.RayError, ConnectionError, RuntimeError, TimeoutError) as error:
        raise RuntimeFault(
            f"Ray could not serve {service.artifact} ({type(error).__name__}: {str(error).strip()[:500]})."
        ) from error
    finally:
        if ray.is_initialized() and service.address is None:
            ray_serve.shutdown()
        ray.shutdown()


def _connect(service: Service) -> None:
    """To the cluster, or to a Ray of this machine that ends with this process."""
    import ray

    if service.address is not None:
        ray.init(address=service.address, log_to_driver=False, logging_level=logging.ERROR)
        return
    cores = max(os.cpu_count() or 1, service.replicas)
    ray.init(
        num_cpus=cores,
        include_dashboard=False,
        _metrics_export_port=service.metrics_port,
        log_to_driver=False,
        logging_level=logging.ERROR,
    )


def _metrics_address(service: Service) -> str:
    """Where the metrics listen. Ray has no setting for it: it takes every network, unless it knows
    its node by the loopback address.
    """
    import ray

    if service.address is not None:
        return "the cluster's own"
    (node,) = ray.nodes()
    ip = node["NodeManagerAddress"]
    host = ip if ipaddress.ip_address(ip).is_loopback else EVERY_NETWORK
    return f"http://{host}:{node['MetricsExportPort']}"


def _application(service: Service, artifact: Artifact):
    from ray import serve as ray_serve

    threads = service.threads or max(1, (os.cpu_count() or 1) // service.replicas)
    # On this machine replicas share what was unpacked; the nodes of a cluster each open what lies
    # at the same path there.
    path = str((artifact.path if service.address is None else Path(artifact.name)).resolve())

    def app():
        from edgeexport.ship.serve.app import make_app

        return make_app(path, threads, batch_by_ray if service.batching else None, service.max_body_bytes)

    deployment = ray_serve.deployment(
        ray_serve.ingress(app)(),
        name=NAME,
        num_replicas=service.replicas,
        max_ongoing_requests=service.ongoing,
        max_queued_requests=service.queue,
        graceful_shutdown_timeout_s=service.drain_s,
        graceful_shutdown_wait_loop_s=0.5,
        health_check_period_s=5,
        ray_actor_options={"num_cpus": 1},
    )
    return deployment.bind()


def batch_by_ray(name: str, most: int, call: Callable) -> Callable:
    """`call`, which takes a list, as a function of one: Ray gathers requests up to `most` rows."""
    from ray import serve as ray_serve

    gather = ray_serve.batch(
        max_batch_size=most,
        batch_wait_timeout_s=BATCH_WAIT_S,
        batch_size_fn=lambda calls: sum(c.rows for c in calls),
    )

    @gather
    async def gathered(calls):
        return await call(calls)

    async def one(item):
        answer = await gathered(item)
        if isinstance(answer, Exception):
            raise answer
        return answer

    return one


def _refuse_taken(host: str, port: int) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            raise UsageError(
                f"Port {port} of {host} cannot be used ({error.strerror}). Give another one."
            ) from error


def _wait_for_a_signal() -> None:
    ended = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: ended.set())
    ended.wait()
