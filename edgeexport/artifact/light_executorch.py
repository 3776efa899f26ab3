"""ExecuTorch's modules without what the packages around them import.

`import executorch.exir` takes five seconds of CPU (dynamo, inductor, distributed), and so does any
module below it, those too that only know the file's format: Python runs the `__init__` of each
package first. Reading a program needs the format, running one the bindings; neither needs the rest.
"""

from __future__ import annotations

import contextlib
import importlib.util
import sys
import threading
from collections.abc import Iterator
from types import ModuleType

_BARE = ("executorch.exir", "executorch.exir._serialize", "executorch.devtools")
"""Packages that are a name and a folder to find modules in: their `__init__` is not run."""

_APART = ("executorch.exir.", "executorch.devtools.", "executorch.extension.flat_tensor.")
"""What imports from those. Inside it is ours, and nobody else sees it: who lowers has to run the
packages' own `__init__` first, or their modules import each other in circles.
"""

_lock = threading.RLock()
_ours: dict[str, ModuleType] = {}


@contextlib.contextmanager
def light_executorch() -> Iterator[None]:
    """Within this, import ExecuTorch's modules and call them (some import more when called).

    Where someone paid for the packages before the first use, they are used as they are.
    """
    with _lock:
        if not _ours and "executorch.exir" in sys.modules:
            yield
            return
        theirs = _taken()
        sys.modules.update(_ours)
        for name in _BARE:
            if name not in sys.modules:
                sys.modules[name] = _bare(name)
        try:
            yield
        finally:
            _ours.update(_taken())
            sys.modules.update(theirs)


def _taken() -> dict[str, ModuleType]:
    names = [name for name in sys.modules if f"{name}.".startswith(_APART)]
    return {name: sys.modules.pop(name) for name in names}


def _bare(name: str) -> ModuleType:
    spec = importlib.util.find_spec(name)
    if spec is None:
        raise ModuleNotFoundError(f"No module named '{name}'", name=name)
    return importlib.util.module_from_spec(spec)
