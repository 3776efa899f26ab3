"""Does a method take as much memory as was forecast before it was lowered?

In the native runner, where nothing else is in memory.
"""

from __future__ import annotations

from collections.abc import Iterator

from edgeexport import text
from edgeexport.artifact.cases import GoldenAnswers, case_calls
from edgeexport.method import Finding
from edgeexport.runtime.program import Program

RUNTIME_BYTES = 32 * 1024 * 1024
"""What the runtime takes when it loads its first method: 25 MB were measured, of code and
tables.
"""

BELOW_FORECAST = 0.4
"""A method may take this share of its forecast or more.

0.77 to 1.07 was measured for SAM 2, EdgeTAM, Whisper and YOLO11; what it is below is a forecast
that refuses what would fit.
"""


def check(program: Program) -> Iterator[Finding]:
    """One finding a method: the growth of a runner of its own, at the greatest case; nothing in
    Python or an emulator, whose memory would count.
    """
    if program.runtime.module != "native" or program.emulated:
        return
    golden = GoldenAnswers(program.artifact.golden())
    for name, entry in program.artifact.methods.items():
        if name not in program.methods or entry.forecast is None:  # earlier versions made none
            continue
        alone = Program(program.artifact, runtime=str(program.runtime))
        before = alone.engine.memory()["rss_bytes"]
        alone[name](*case_calls(entry.cases[-1], alone, alone[name], golden)[1])
        taken = alone.engine.memory()["peak_rss_bytes"] - before
        forecast = entry.forecast.peak_bytes
        least, most = BELOW_FORECAST * forecast, forecast + RUNTIME_BYTES
        yield Finding(
            "peak_memory",
            name,
            least <= taken <= most,
            f"{text.size(taken)} at most, {text.size(forecast)} forecast",
            f"{text.size(least)} to {text.size(most)}",
            "",
            {"peak_bytes": taken, "forecast_bytes": forecast},
        )
