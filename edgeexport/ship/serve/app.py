"""The HTTP application of one server package: a route a method, one for the pipeline, health,
readiness and the OpenAPI page.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse
from starlette.datastructures import FormData, UploadFile

from edgeexport.artifact.manifest import MethodEntry
from edgeexport.errors import EdgeExportError, InputError, RuntimeFault
from edgeexport.method import Option, Pipeline
from edgeexport.pipelines import pipeline
from edgeexport.runtime.program import Program, open_program
from edgeexport.ship.serve import MAX_BODY_BYTES
from edgeexport.ship.serve.wire import JSON, SAFETENSORS, read_tensors, write_tensors
from edgeexport.ship.serve.worker import Worker

if TYPE_CHECKING:
    import torch


class BodyTooLarge(Exception):
    """A body is over the limit: HTTP 413."""


def make_app(
    path: str,
    threads: int | None = None,
    batching: Callable | None = None,
    max_body_bytes: int = MAX_BODY_BYTES,
) -> FastAPI:
    """Open the artifact at `path`, load every method, and offer it.

    `batching` as `Worker` takes it; None serves every request alone.
    """
    program = open_program(path, threads)
    worker = Worker(program, batching)
    manifest = program.manifest
    app = FastAPI(
        title=manifest.model.name,
        summary=manifest.model.summary,
        version=manifest.created,
        description=_describe(program),
    )
    app.add_middleware(LimitBody, most=max_body_bytes)
    app.exception_handler(EdgeExportError)(_say)
    app.exception_handler(BodyTooLarge)(_too_large)

    @app.get("/healthz", summary="The process answers")
    async def healthz() -> dict:
        return {"alive": True}

    @app.get("/readyz", summary="Every method is loaded")
    async def readyz() -> dict:
        return {
            "ready": True,
            "model": manifest.model.name,
            "methods": list(program.methods),
            "batched": list(worker.batched),
        }

    @app.get(
        "/manifest", summary="What was built from what, what it takes and returns, and what was measured"
    )
    async def show() -> dict:
        return manifest.to_json()

    for name in program.methods:
        _add_method(app, worker, name)
    for number, name in enumerate(manifest.pipelines or ()):
        _add_pipeline(app, worker, "/run" if number == 0 else f"/run/{name}", pipeline(name))
    return app


def _add_method(app: FastAPI, worker: Worker, name: str) -> None:
    method, entry = worker.program[name], worker.program.artifact.methods[name]
    state = {s.name: s.dtype for s in entry.state}

    async def call(request: Request) -> Response:
        found = read_tensors(await request.body(), request.headers.get("content-type", JSON), method, state)
        session, kept = None, {}
        if state:
            session = worker.program.session()
            kept = session.state or {}
            kept.update({n: found[n].contiguous() for n in state if n in found})
            _check_state(name, kept, entry)
        answers = dict(
            zip(method.outputs, await worker.call(name, [found[i.name] for i in method.inputs], session))
        )
        answers |= {n: kept[n] for n in state}
        body, kind = write_tensors(answers, request.headers.get("accept", JSON))
        return Response(body, media_type=kind)

    content = {kind: {} for kind in (JSON, SAFETENSORS)}
    app.add_api_route(
        f"/methods/{name}",
        call,
        methods=["POST"],
        summary=f"Call {name}",
        description=_describe_method(entry),
        response_class=Response,
        responses={200: {"content": content}},
        openapi_extra={"requestBody": {"required": True, "content": content}},
    )


def _check_state(name: str, state: Mapping[str, torch.Tensor], entry: MethodEntry) -> None:
    for spec in entry.state:
        tensor = state[spec.name]
        if tuple(tensor.shape) != spec.shape or str(tensor.dtype) != f"torch.{spec.dtype}":
            raise InputError(
                f"The state '{spec.name}' of '{name}' must be {spec.dtype} {list(spec.shape)}, not"
                f" {str(tensor.dtype).removeprefix('torch.')} {list(tensor.shape)}."
            )


def _add_pipeline(app: FastAPI, worker: Worker, path: str, pipeline: Pipeline) -> None:
    outputs = [o.name for o in pipeline.options if o.kind == "output"]

    async def run(request: Request) -> Response:
        wanted = request.query_params.get("output")
        if wanted is not None and wanted not in outputs:
            raise InputError(f"There is no output '{wanted}'. There are: {', '.join(outputs) or 'none'}.")
        async with request.form() as form:
            with tempfile.TemporaryDirectory() as folder:
                options = {
                    name: value
                    for o in pipeline.options
                    for name, value in await _option(o, form, Path(folder))
                }
                written = Path(folder) / "output"
                result = await worker.run(
                    pipeline.run, options | ({wanted.replace("-", "_"): str(written)} if wanted else {})
                )
                if wanted:
                    return _file(written, wanted)
        return JSONResponse(json.loads(json.dumps(_without_paths(result, folder))))

    properties = {
        o.name: {
            "type": "string",
            "description": o.help,
            **({"format": "binary"} if o.kind == "file" else {}),
        }
        for o in pipeline.options
        if o.kind != "output"
    }
    required = [o.name for o in pipeline.options if o.required]
    form = {"type": "object", "properties": properties, **({"required": required} if required else {})}
    query = (
        [
            {
                "name": "output",
                "in": "query",
                "schema": {"enum": outputs},
                "description": "answer with this file instead of JSON",
            }
        ]
        if outputs
        else []
    )
    app.add_api_route(
        path,
        run,
        methods=["POST"],
        summary="Run the whole pipeline: real input to real output",
        response_class=Response,
        openapi_extra={
            "parameters": query,
            "requestBody": {"required": True, "content": {"multipart/form-data": {"schema": form}}},
        },
    )


async def _option(option: Option, form: FormData, folder: Path) -> list[tuple[str, Any]]:
    """The option as a pipeline takes it, if it is given.

    A file must be uploaded: a path of the server is not one. Raises InputError.
    """
    values: list[Any] = form.getlist(option.name)
    name = option.name.replace("-", "_")
    if option.kind == "output" or (not values and not option.required):
        return [(name, option.default)] if option.default is not None and not values else []
    if not values:
        raise InputError(f"'{option.name}' is needed: {option.help}.")
    if option.kind == "file":
        if not isinstance(values[0], UploadFile):
            raise InputError(f"'{option.name}' must be an uploaded file (multipart/form-data).")
        path = folder / f"{name}{Path(values[0].filename or '').suffix[:8]}"
        path.write_bytes(await values[0].read())
        return [(name, str(path))]
    if not all(isinstance(v, str) for v in values):
        raise InputError(f"'{option.name}' must be text, not a file.")
    if option.kind == "number":
        if not values[0].lstrip("-").isdecimal():
            raise InputError(f"'{option.name}' must be a whole number, not '{values[0][:40]}'.")
        return [(name, int(values[0]))]
    return [(name, tuple(values) if option.multiple else values[0])]


def _file(written: Path, wanted: str) -> Response:
    if not written.is_file():
        raise InputError(f"'{wanted}' is not one file for this input: a photo gives one, a film does not.")
    content = written.read_bytes()
    return Response(content, media_type="image/png" if content.startswith(b"\x89PNG") else JSON)


def _without_paths(value: Any, folder: str) -> Any:
    """A result without the places of this request's files."""
    if isinstance(value, Mapping):
        return {
            k: _without_paths(v, folder)
            for k, v in value.items()
            if not (isinstance(v, str) and v.startswith(folder))
        }
    return [_without_paths(v, folder) for v in value] if isinstance(value, (list, tuple)) else value


async def _say(request: Request, error: EdgeExportError) -> JSONResponse:
    """Our errors as they are: the program's own fault is a 500, everything else the request's."""
    return JSONResponse({"error": str(error)}, 500 if isinstance(error, RuntimeFault) else 422)


async def _too_large(request: Request, error: BodyTooLarge) -> JSONResponse:
    return JSONResponse({"error": str(error)}, 413)


class LimitBody:
    """Stops reading a body that is over the limit, whether or not it says its length beforehand."""

    def __init__(self, app, most: int):
        self.app, self.most = app, most

    async def __call__(self, scope, receive, send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        seen = 0

        async def limited():
            nonlocal seen
            message = await receive()
            seen += len(message.get("body", b""))
            if seen > self.most:
                raise BodyTooLarge(f"The body is larger than {self.most} bytes.")
            return message

        said = dict(scope["headers"]).get(b"content-length", b"0")
        if said.isdigit() and int(said) > self.most:
            await JSONResponse(
                {"error": f"The body has {int(said)} bytes; at most {self.most} are taken."}, 413
            )(scope, receive, send)
            return
        await self.app(scope, limited, send)


def _describe(program: Program) -> str:
    weights = program.manifest.weights
    note = "The weights are RANDOM: the answers mean nothing. " if weights.random else ""
    return (
        f"{note}Tensors go in and out as JSON (nested lists by name) or, with the content type"
        f" `{SAFETENSORS}`, in the safetensors format."
    )


def _describe_method(entry: MethodEntry) -> str:
    def table(title: str, tensors: Iterable[tuple[str, str, Sequence, str]]) -> str:
        return f"\n\n{title}:\n\n" + "\n".join(
            f"- `{name}`: {dtype} {list(shape)}. {meaning}" for name, dtype, shape, meaning in tensors
        )

    ranges = "".join(f"\n\n`{d.name}` is {d.asked[0]} to {d.asked[1]}." for d in entry.dims)
    state = (
        table(
            "State, taken and returned; without it a new one begins",
            ((s.name, s.dtype, s.shape, "") for s in entry.state),
        )
        if entry.state
        else ""
    )
    return (
        table("Inputs", ((i.name, i.dtype, i.shape, i.meaning) for i in entry.inputs))
        + table("Outputs", ((o.name, o.dtype, o.shape_at_least, o.meaning) for o in entry.outputs))
        + ranges
        + state
    )
