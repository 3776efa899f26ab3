"""edgeexport: PyTorch models to the device, proven to still say what the model said.

    artifact = edgeexport.build("sam2", target="xnnpack", weights="random")
    program = edgeexport.open("build/sam2/xnnpack-fp32")
    features = program["encode_image"](image)

Names are loaded when first used, so that importing the package costs nothing.
"""

from __future__ import annotations

import importlib
import sys
import types

_HOMES = {
    "Dim": "edgeexport.method",
    "EdgeExportError": "edgeexport.errors",
    "Finding": "edgeexport.method",
    "Input": "edgeexport.method",
    "Method": "edgeexport.method",
    "Model": "edgeexport.method",
    "Output": "edgeexport.method",
    "Program": "edgeexport.runtime.program",
    "Source": "edgeexport.method",
    "Tolerance": "edgeexport.method",
    "UsageError": "edgeexport.errors",
    "Weights": "edgeexport.method",
    "build": "edgeexport.build",
    "bundle": "edgeexport.artifact.bundle",
    "check": "edgeexport.verify.checks",
    "open": "edgeexport.runtime.program",
}
_FUNCTIONS = {"open": "open_program", "check": "check_artifact"}

__all__ = sorted(_HOMES)  # pyright: ignore[reportUnsupportedDunderAll]: those names, once


def __getattr__(name: str):
    if name not in _HOMES:
        raise AttributeError(f"module 'edgeexport' has no attribute '{name}'")
    value = getattr(importlib.import_module(_HOMES[name]), _FUNCTIONS.get(name, name))
    globals()[name] = value
    return value


class _Package(types.ModuleType):
    """Keeps public functions when a submodule of the same name is imported, which sets it on its
    package.
    """

    def __setattr__(self, name, value):
        if not (name in _HOMES and isinstance(value, types.ModuleType)):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package


def __dir__() -> list[str]:
    return __all__
