"""Tensors over HTTP: JSON as nested lists, or the safetensors format."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from edgeexport.errors import InputError

if TYPE_CHECKING:
    import torch

    from edgeexport.runtime.program import ProgramMethod

JSON, SAFETENSORS = "application/json", "application/x-safetensors"


def read_tensors(
    body: bytes, kind: str, method: ProgramMethod, state: Mapping[str, str]
) -> dict[str, torch.Tensor]:
    """The tensors of a request by name: every input of `method`, and none or all of its `state`
    (dtypes by name). Raises InputError.

    Numbers of JSON take the declared dtype. Not a number and infinity are refused: they come of a
    fault at the client, and go through to every answer of a batch's row.
    """
    dtypes = {i.name: i.dtype for i in method.inputs} | dict(state)
    found = _from_json(body, dtypes) if kind.startswith(JSON) else _from_safetensors(body, kind)
    missing = [i.name for i in method.inputs if i.name not in found]
    if missing:
        raise InputError(
            f"'{method.name}' takes {', '.join(i.name for i in method.inputs)}; there is no"
            f" {', '.join(missing)}."
        )
    unknown = sorted(found.keys() - dtypes.keys())
    if unknown:
        raise InputError(f"'{method.name}' takes no {', '.join(unknown)}. It takes {', '.join(dtypes)}.")
    given = [name for name in state if name in found]
    if given and len(given) < len(state):
        raise InputError(
            f"The state of '{method.name}' is {', '.join(state)}: give all of it, or none for a new one."
        )
    for name, tensor in found.items():
        if (
            tensor.is_floating_point()
            and not math.isfinite(float(tensor.sum()))
            and not bool(tensor.isfinite().all())
        ):
            raise InputError(f"'{name}' holds values that are not finite numbers.")
    return found


def _from_json(body: bytes, dtypes: Mapping[str, str]) -> dict[str, torch.Tensor]:
    import torch

    try:
        data = json.loads(body)
    except (UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
        raise InputError(f"The body is not JSON ({type(error).__name__}: {str(error)[:200]}).") from error
    if not isinstance(data, dict):
        raise InputError('The body must be an object of tensors by name: {"image": [[...]]}.')
    found = {}
    for name, value in data.items():
        try:
            found[name] = torch.tensor(value, dtype=getattr(torch, dtypes.get(name, "float32")))
        except (ValueError, TypeError, RuntimeError, OverflowError) as error:
            raise InputError(
                f"'{name}' is not a tensor: nested lists of numbers, of equal lengths, are needed"
                f" ({str(error)[:200]})."
            ) from error
    return found


def _from_safetensors(body: bytes, kind: str) -> dict[str, torch.Tensor]:
    from safetensors import SafetensorError
    from safetensors.torch import load

    if not kind.startswith(SAFETENSORS):
        raise InputError(f"The content type is '{kind}'; {JSON} and {SAFETENSORS} are taken.")
    try:
        return load(body)
    except (SafetensorError, ValueError, KeyError) as error:
        raise InputError(f"The body is not in the safetensors format ({str(error)[:200]}).") from error


def write_tensors(tensors: Mapping[str, torch.Tensor], kind: str) -> tuple[bytes, str]:
    """The body of an answer, and its content type: as asked for in Accept, else JSON."""
    from safetensors.torch import save

    if SAFETENSORS in kind:
        return save({name: t.contiguous() for name, t in tensors.items()}), SAFETENSORS
    data: dict[str, Any] = {name: t.tolist() for name, t in tensors.items()}
    return json.dumps(data).encode(), JSON
