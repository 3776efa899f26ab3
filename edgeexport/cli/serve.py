"""`edgeexport serve`."""

from __future__ import annotations

from pathlib import Path

import click

from edgeexport.ship.serve import MAX_BODY_BYTES


@click.command(name="serve")
@click.argument("artifact", type=click.Path(path_type=Path))
@click.option(
    "--replicas",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="Processes that run the program.",
)
@click.option(
    "--threads",
    type=click.IntRange(min=1),
    help="Threads of each.  [default: the cores divided among the replicas]",
)
@click.option(
    "--host", default="127.0.0.1", show_default=True, help="Where to listen; 0.0.0.0 for every network."
)
@click.option("--port", type=click.IntRange(1, 65535), default=8000, show_default=True, help="HTTP port.")
@click.option(
    "--metrics-port",
    type=click.IntRange(1, 65535),
    default=8001,
    show_default=True,
    help="Port of the metrics, in Prometheus' form.",
)
@click.option(
    "--queue",
    type=click.IntRange(min=1),
    default=256,
    show_default=True,
    help="Requests that may wait; more are answered with 503 at once.",
)
@click.option(
    "--batching/--no-batching",
    default=True,
    show_default=True,
    help="Run requests that meet as one batch, where the program can.",
)
@click.option(
    "--drain",
    "drain_s",
    type=click.FloatRange(min=0),
    default=30.0,
    show_default=True,
    metavar="SECONDS",
    help="How long requests under way may take when it is stopped.",
)
@click.option(
    "--max-body",
    "max_body_bytes",
    type=click.IntRange(min=1),
    default=MAX_BODY_BYTES,
    show_default=True,
    metavar="BYTES",
    help="Larger bodies are refused with 413.",
)
@click.option(
    "--address", help="Address of a Ray cluster to spread the replicas over.  [default: this machine]"
)
def command(artifact: Path, **options) -> None:
    """Serve ARTIFACT (for an archive, the server package in it) over HTTP: every method (POST
    /methods/NAME), the pipeline (POST /run), /healthz, /readyz, /docs.

    \b
    Example:
      edgeexport serve build/sam2/aoti-fp32 --replicas 2
      curl -F image=@photo.jpg -F point=320,240 "http://127.0.0.1:8000/run?output=mask" -o mask.png
    """
    from edgeexport.ship.serve.engine import Service, serve

    serve(
        Service(artifact, **options),
        lambda url, metrics: click.echo(
            f"Serving {artifact} at {url} (the API: {url}/docs, metrics: {metrics}). Ctrl-C ends it."
        ),
    )
