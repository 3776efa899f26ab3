"""Keeps PyTorch's choice of convolution backend from narrowing a dynamic batch."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator


@contextlib.contextmanager
def no_backend_guards() -> Iterator[None]:
    """Within this, tracing a convolution leaves the range of a dynamic batch as it was declared.

    The fake convolution asks which CPU backend would run it, and NNPACK and oneDNN each compare the
    batch with 16. Traced with an example below that, the answer becomes a guard: the symbol's range
    silently shrinks to [2, 15] while `range_constraints` still says what was asked for, memory is
    planned for 15, and batch 16 fails on the device. Either backend alone is enough, so both are
    off, at capture, while passes compute new values, and during lowering (which traces again).
    """
    import torch

    with torch.backends.nnpack.flags(enabled=False), torch.backends.mkldnn.flags(enabled=False):
        yield
