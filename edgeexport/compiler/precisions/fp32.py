"""float32, as models are captured: nothing to do."""

from __future__ import annotations

from edgeexport.compiler.precision import FLOAT, Kind

KIND = Kind(FLOAT, operators=(), fits=lambda editor, node: False, quantize=lambda editor, node, ranges: None)
