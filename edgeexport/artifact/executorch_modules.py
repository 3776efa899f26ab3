"""ExecuTorch's modules without what the packages around them import.

`import executorch.exir` takes five seconds of CPU (dynamo, inductor, distributed), and so does any
module below it, those too that only know the file's format: Python runs the `__init__` of each
package first. Here these packages are lazy: theirs runs when something is asked of the package
itself, as lowering does (`from executorch.exir import to_edge_transform_and_lower`), and not
before. Reading a program needs a file format, running one needs the bindings; neither asks.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from types import ModuleType
from typing import Any

_LAZY = ("executorch.exir", "executorch.exir._serialize", "executorch.devtools")


def executorch_module(name: str) -> Any:
    """The module `executorch.NAME`. Raises ImportError."""
    for package in _LAZY:
        if package not in sys.modules:
            sys.modules[package] = _lazy(package)
    return importlib.import_module(f"executorch.{name}")


class _LazyPackage(ModuleType):
    """A package whose `__init__` runs at the first name that is asked of it.

    importlib.util.LazyLoader is no help: it counts `__path__`, which the import of any module
    inside asks for.
    """

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or self.__spec__ is None or self.__spec__.loader is None:
            raise AttributeError(f"module '{self.__name__}' has no attribute '{name}'")
        self.__class__ = ModuleType  # pyright: ignore[reportAttributeAccessIssue]: modules may change theirs
        self.__spec__.loader.exec_module(self)
        return getattr(self, name)


def _lazy(name: str) -> ModuleType:
    spec = importlib.util.find_spec(name)
    if spec is None:
        raise ModuleNotFoundError(f"No module named '{name}'", name=name)
    module = importlib.util.module_from_spec(spec)
    module.__class__ = _LazyPackage
    return module
