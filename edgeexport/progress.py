"""Steps of long work: what runs, how long it took, how much memory it needed."""

from __future__ import annotations

import contextlib
import resource
import signal
import time
from collections.abc import Callable, Iterator

_stopped = False


def stop_on_interrupt() -> None:
    """Make Ctrl-C count, whatever it meets: where Python cannot raise (a finalizer, a callback of a
    library), it would be lost.

    It is raised at once as ever, and again at the end of the running step if that went on.
    """

    def handler(number, frame):
        global _stopped
        _stopped = True
        raise KeyboardInterrupt

    signal.signal(signal.SIGINT, handler)


class Progress:
    """Times named steps; `on_start(name)`, `on_end(name, seconds)` and `on_fail(name)` let a
    display follow.
    """

    def __init__(
        self,
        on_start: Callable[[str], None] | None = None,
        on_end: Callable[[str, float], None] | None = None,
        on_fail: Callable[[str], None] | None = None,
    ):
        self._on_start, self._on_end, self._on_fail = on_start, on_end, on_fail
        self._begun = time.perf_counter()
        self.steps: list[tuple[str, float]] = []

    @contextlib.contextmanager
    def step(self, name: str) -> Iterator[None]:
        if self._on_start:
            self._on_start(name)
        start = time.perf_counter()
        try:
            yield
            if _stopped:
                raise KeyboardInterrupt
        except BaseException:
            if self._on_fail:
                self._on_fail(name)
            raise
        seconds = time.perf_counter() - start
        self.steps.append((name, seconds))
        if self._on_end:
            self._on_end(name, seconds)

    def branch(self) -> Progress:
        """One that goes on from here: its steps and time are those so far and its own, without
        those of other branches.
        """
        other = Progress(self._on_start, self._on_end, self._on_fail)
        other.steps = list(self.steps)
        other._begun -= sum(seconds for _, seconds in self.steps)
        return other

    def timings(self) -> dict:
        """Seconds of each step and of all so far, and this process's peak resident bytes."""
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return {
            "steps": [{"name": name, "seconds": round(seconds, 2)} for name, seconds in self.steps],
            "wall_s": round(time.perf_counter() - self._begun, 2),
            "peak_rss_bytes": peak * (1 if _is_macos() else 1024),
        }


def _is_macos() -> bool:
    import sys

    return sys.platform == "darwin"
