"""float32, as models are captured: nothing to do."""

from __future__ import annotations

from edgeexport.compiler.precision import Precision

PRECISION = Precision("fp32", passes=())
