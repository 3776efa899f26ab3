"""ONNX Runtime on the same module, exported by PyTorch for just this size (extra `[bench]`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from edgeexport.errors import UsageError
from edgeexport.verify.bench.case import Case


def require() -> None:
    """Raises UsageError without the packages."""
    from importlib.util import find_spec

    missing = [name for name in ("onnxruntime", "onnxscript") if find_spec(name) is None]
    if missing:
        raise UsageError(
            f"--against onnxruntime needs {' and '.join(missing)}. Install the extra: pip install"
            " 'edgeexport[bench]'."
        )


def prepare(case: Case) -> Callable[[], object]:
    """A session on the CPU.

    State goes in and comes out, as ONNX has no buffers that calls change.
    """
    import onnxruntime

    state = {name: torch.zeros_like(case.method.module.get_buffer(name)) for name in case.state}
    module = _ExplicitState(case.method.module, tuple(state)) if state else case.method.module
    inputs = (*case.inputs, *state.values())
    path = case.folder / f"{case.method.name}-{case.label}.onnx"
    if not path.exists():
        with torch.no_grad():
            program = torch.export.export(module, inputs, strict=False)
            exported = torch.onnx.export(program, dynamo=True, verbose=False)
            assert exported is not None, "with dynamo=True it gives a program"
            exported.save(path)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = case.threads
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    feed = {spec.name: tensor.numpy() for spec, tensor in zip(session.get_inputs(), inputs)}
    return lambda: [
        torch.from_numpy(answer) for answer in session.run(None, feed)[: len(case.method.outputs)]
    ]


class _ExplicitState(torch.nn.Module):
    """A module whose changing buffers are given, after its own inputs, and returned."""

    def __init__(self, module: torch.nn.Module, names: Sequence[str]):
        super().__init__()
        self.module = module
        self.names = names

    def forward(self, *tensors):
        own, state = tensors[: -len(self.names)], tensors[-len(self.names) :]
        given = {name: tensor.clone() for name, tensor in zip(self.names, state)}
        answer = torch.func.functional_call(self.module, given, own)
        return (*(answer if isinstance(answer, tuple) else (answer,)), *given.values())
