"""How often each profiler does its regular work."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from ebpfprof.profilers.options import Options
from ebpfprof.recording import loaded_profilers
from ebpfprof.recording.loaded_profilers import LoadedProfilers


class Polled:
    """A profiler that counts its polls."""

    def __init__(self, tick_s: float) -> None:
        self.tick_s, self.polls = tick_s, 0

    def poll(self) -> None:
        self.polls += 1

    def close(self) -> None:
        """Nothing to close."""


def test_each_profiler_has_its_own_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that learns to unwind is polled fifty times a second; others with many processes not."""
    now_s = 100.0
    clock = SimpleNamespace(monotonic=lambda: now_s)
    monkeypatch.setattr(loaded_profilers, "time", clock)
    often, rarely = Polled(0.02), Polled(0.1)
    folder = "ebpfprof.profilers.goroutines"
    monkeypatch.setattr(f"{folder}.loader.open_profiler", lambda *_: often)
    monkeypatch.setattr(f"{folder}.thread_loader.open_profiler", lambda *_: rarely)
    profilers = LoadedProfilers(1, Options(kinds=("goroutine", "threads")))
    for _ in range(100):
        profilers.poll()
        now_s += profilers.tick_s
    assert (often.polls, rarely.polls) == (100, 20)

    often.tick_s = 0.25
    for _ in range(20):  # every second or third tick of the others
        profilers.poll()
        now_s += profilers.tick_s
    assert 6 <= often.polls - 100 <= 10

    often.tick_s = 0.02
    profilers.poll()
    before = often.polls
    now_s += profilers.tick_s
    profilers.poll()
    assert often.polls == before + 1
