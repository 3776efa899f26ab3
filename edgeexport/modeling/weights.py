"""Loads weights without running code, and makes repeatable random ones."""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

import torch
from torch import nn

from edgeexport.errors import WeightsError
from edgeexport.method import Weights

_SHOWN_KEYS = 3


def randomize(module: nn.Module, seed: int) -> None:
    """Fill every floating-point parameter and buffer of `module`, repeatably for a seed.

    Matrices and kernels are normal with variance 1 / fan-in, so that activations keep their scale
    through any depth; norms are near one, everything else (biases, embeddings, positions) small but
    not zero, so that no term of the model is hidden from a numerics check. Running statistics are
    near their defaults, means 0 and variances 1.
    """
    generator = torch.Generator().manual_seed(seed)
    kinds = (nn.LayerNorm, nn.GroupNorm, nn.modules.batchnorm._BatchNorm)
    norms = {id(m.weight) for m in module.modules() if isinstance(m, kinds) and m.weight is not None}
    linear = (nn.Linear, nn.modules.conv._ConvNd)
    kernels = {id(m.weight) for m in module.modules() if isinstance(m, linear)}
    with torch.no_grad():
        for name, tensor in (*module.named_parameters(), *module.named_buffers()):
            if not tensor.is_floating_point():
                continue
            noise = torch.randn(tensor.shape, generator=generator)
            if name.endswith("running_mean"):
                tensor.copy_(0.1 * noise)
            elif name.endswith("running_var"):
                tensor.copy_((0.1 * noise).exp())
            elif id(tensor) in norms:
                tensor.copy_(1.0 + 0.1 * noise)
            elif id(tensor) in kernels:
                tensor.copy_(noise / math.sqrt(tensor[0].numel()))
            else:
                tensor.copy_(0.2 * noise)


def state_sha256(module: nn.Module) -> str:
    """sha256 over names, dtypes, shapes and bytes of the state dict, in order."""
    state = hashlib.sha256()
    for name, tensor in module.state_dict().items():
        state.update(f"{name}{tensor.dtype}{tuple(tensor.shape)}".encode())
        state.update(tensor.detach().cpu().contiguous().numpy().tobytes())
    return state.hexdigest()


def file_sha256(path: str | os.PathLike) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


class InertModule:
    """What a module in a checkpoint is read as: its attributes.

    It has no method that a file could make run.
    """


def read_checkpoint(path: str | os.PathLike, module_classes: Iterable[str] = ()) -> dict[str, torch.Tensor]:
    """The tensors of a `.safetensors` file or of a torch checkpoint without code in it.

    A checkpoint that nests its tensors under `ema`, `state_dict` or `model` is unwrapped. Some
    frameworks pickle whole modules there: `module_classes` are the full names of the classes that
    may be met. None of them is imported; each is read as an InertModule, and the tensors are taken
    out by name. Raises WeightsError when the file is missing, damaged, empty of tensors, or a
    pickle that would run code.
    """
    path = Path(path)
    if not path.is_file():
        raise WeightsError(f"There is no checkpoint file at {path}. Give a .safetensors, .pt or .pth file.")
    try:
        content = (
            _read_safetensors(path) if path.suffix == ".safetensors" else _read_torch(path, module_classes)
        )
    except OSError as error:
        raise WeightsError(f"{path} cannot be read ({error.strerror or error}).") from error
    for key in ("ema", "state_dict", "model"):
        if isinstance(content, Mapping) and isinstance(content.get(key), (Mapping, InertModule)):
            content = content[key]
    if isinstance(content, InertModule):
        content = dict(_named_tensors(content))
    tensors = (
        {k: v for k, v in content.items() if isinstance(v, torch.Tensor)}
        if isinstance(content, Mapping)
        else {}
    )
    if not tensors:
        raise WeightsError(f"{path} holds no tensors by name: it is not a state dict.")
    return tensors


def _read_safetensors(path: Path) -> dict[str, torch.Tensor]:
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        return load_file(path)
    except (SafetensorError, ValueError) as error:
        raise WeightsError(
            f"{path} is damaged or not a safetensors file ({error}). Fetch or save it again."
        ) from error


def _named_tensors(
    module: InertModule, prefix: str = "", depth: int = 0
) -> Iterator[tuple[str, torch.Tensor]]:
    """What state_dict() of the module would hold, read from its attributes alone; nothing below 64
    levels.
    """
    facts = vars(module)
    unsaved = facts.get("_non_persistent_buffers_set") or ()
    for store in ("_parameters", "_buffers"):
        for name, tensor in dict(facts.get(store) or {}).items():
            if isinstance(tensor, torch.Tensor) and name not in unsaved:
                yield f"{prefix}{name}", tensor.detach()
    for name, child in dict(facts.get("_modules") or {}).items():
        if isinstance(child, InertModule) and depth < 64:
            yield from _named_tensors(child, f"{prefix}{name}.", depth + 1)


def _read_torch(path: Path, module_classes: Iterable[str]):
    import pickle

    try:
        with torch.serialization.safe_globals([(InertModule, name) for name in module_classes]):
            return torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        if "unsupported" in str(error).lower() or "blocked" in str(error).lower():
            raise WeightsError(
                f"{path} is refused: it is a pickle that would run code, not plain tensors "
                f"({_first_sentence(error)}). Save the model's state_dict() with safetensors instead."
            ) from error
        raise WeightsError(f"{path} is damaged or not a checkpoint ({_first_sentence(error)}).") from error
    except (
        RuntimeError,
        EOFError,
        ValueError,
        KeyError,
        AssertionError,
        TypeError,
        AttributeError,
        IndexError,
    ) as error:
        raise WeightsError(
            f"{path} is damaged or cut short ({_first_sentence(error)}). Fetch it again."
        ) from error


def _first_sentence(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return next(
        (line for line in lines if "unsupported" in line.lower() or "GLOBAL" in line),
        lines[0] if lines else type(error).__name__,
    )[:200]


def fit(module: nn.Module, tensors: Mapping[str, torch.Tensor], path: str | os.PathLike) -> None:
    """Load `tensors` into `module`; every key and shape must fit.

    Raises WeightsError that names the first that do not.
    """
    wanted = module.state_dict()
    problems = [f"missing {k}" for k in wanted if k not in tensors]
    problems += [f"unknown {k}" for k in tensors if k not in wanted]
    problems += [
        f"{k} has shape {list(tensors[k].shape)}, the model has {list(v.shape)}"
        for k, v in wanted.items()
        if k in tensors and tensors[k].shape != v.shape
    ]
    if problems:
        shown = "; ".join(problems[:_SHOWN_KEYS])
        more = f"; and {len(problems) - _SHOWN_KEYS} more" if len(problems) > _SHOWN_KEYS else ""
        raise WeightsError(f"{path} is a checkpoint of another model or variant: {shown}{more}.")
    module.load_state_dict(dict(tensors))


def pretrained_or_error(origin: str, download):
    """What `download` returns; where the hub or server cannot be reached, a WeightsError that says
    what to do.
    """
    try:
        return download()
    except (
        OSError,
        ValueError,
    ) as error:  # transformers and urllib raise OSError for every kind of missing file and network
        raise WeightsError(
            f"The pretrained weights of {origin} cannot be had ({_first_sentence(error)}). "
            "Give a checkpoint file with --weights PATH, or build with --weights random to test without them."
        ) from error


def load_module(
    weights: Weights,
    build: Callable[[], nn.Module],
    pretrained: Callable[[], nn.Module],
    origin: str,
    select: Callable[[Mapping[str, torch.Tensor]], Mapping[str, torch.Tensor]] = dict,
    module_classes: Iterable[str] = (),
) -> tuple[nn.Module, Weights]:
    """A frozen module in eval mode with the weights asked for, and those weights with their sha256
    and origin.

    `build` makes the architecture, `pretrained` downloads the released model of `origin`, `select`
    takes out of a checkpoint what the architecture has, `module_classes` are what read_checkpoint
    may meet. Raises WeightsError.
    """
    if weights.source == "pretrained":
        module = pretrained_or_error(origin, pretrained)
        weights = weights.loaded(state_sha256(module), origin)
    elif weights.source == "random":
        module = build()
        randomize(module, weights.seed)
        weights = weights.loaded(state_sha256(module), f"random, seed {weights.seed}")
    else:
        assert weights.path is not None, "a checkpoint is a file"
        module = build()
        fit(module, select(read_checkpoint(weights.path, module_classes)), weights.path)
        weights = weights.loaded(file_sha256(weights.path), weights.path)
    return module.eval().requires_grad_(False), weights


def tokenizer_file(weights: Weights, repository: str) -> dict[str, bytes]:
    """tokenizer.json with its content: from beside a checkpoint, or of the released model; none
    with random weights, whose tokens mean nothing.
    """
    if weights.source == "checkpoint" and weights.path:
        beside = Path(weights.path).with_name("tokenizer.json")
        return {beside.name: beside.read_bytes()} if beside.is_file() else {}
    if weights.source == "pretrained":
        from huggingface_hub import hf_hub_download

        found = pretrained_or_error(repository, lambda: hf_hub_download(repository, "tokenizer.json"))
        return {"tokenizer.json": Path(found).read_bytes()}
    return {}
