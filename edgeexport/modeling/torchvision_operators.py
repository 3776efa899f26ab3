"""Lets torchvision be imported beside a PyTorch that its binary extension was not built for."""

from __future__ import annotations

import logging

log = logging.getLogger(__name__)
_library = None


def ensure_torchvision() -> None:
    """Import torchvision; where its C++ extension cannot load, first define the two operator
    schemas it asks for.

    The torchvision wheels on PyPI are built for CUDA. Beside a CPU-only torch their extension does
    not load, and `import torchvision` (and transformers with it) dies with "operator
    torchvision::nms does not exist", though nothing here calls it. With a matching torchvision this
    does nothing.
    """
    global _library
    if _library is not None:
        return
    import torch

    try:
        import torchvision  # noqa: F401
    except RuntimeError as error:
        if "torchvision::nms" not in str(error):
            raise
        _forget_half_imported()
        _library = torch.library.Library("torchvision", "DEF")
        for name in ("nms", "qnms"):
            _library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        import torchvision  # noqa: F401

        log.info(
            "torchvision's C++ extension does not fit this torch; its operators (nms, ...) are not available."
        )


def _forget_half_imported() -> None:
    import sys

    for name in [n for n in sys.modules if n == "torchvision" or n.startswith("torchvision.")]:
        del sys.modules[name]
