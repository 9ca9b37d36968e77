"""Groups of operations: what the time of a handler consists of, in the words of an engineer."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Final

from ebpfprof.profile.model import Frame, Sample
from ebpfprof.profile.operations import STATE, operation_of
from ebpfprof.profile.wakers import waiter_of

_RUNNING: Final = "running"
_OTHER: Final = "other"
_SYSTEM_CALLS: Final = "system calls"
_COLLECTION: Final = "garbage collection"
_C: Final = "C"
NETWORK: Final = "network"
_MAX_CACHED: Final = 1 << 12

# By how operations begin, as operation_of and the states of Go's tracebacks name them.
_GROUPS: Final = {
    "locks": ("Mutex.", "RWMutex.", "rlocker.", "Once.", "Map.", "Pool.", "fd lock", "fd unlock"),
    "channels": ("chan ", "select"),
    "goroutines": ("WaitGroup.", "Cond.", "errgroup Wait", "singleflight Do", "coroutine"),
    "pools and limits": (
        *("sql connection", "HTTP connection", "gRPC connection", "HTTP stream", "gRPC stream"),
        *("semaphore Acquire", "errgroup Go", "rate limit"),
    ),
    NETWORK: ("IO wait", "HTTP answer", "gRPC answer", "DNS lookup"),
    "pipes": ("pipe read", "pipe write"),
    "sleep": ("sleep",),
    _SYSTEM_CALLS: ("syscall",),
    _C: ("C ", "in C"),
    "run queue": ("runnable", "preempted"),
    _RUNNING: ("running",),
    _COLLECTION: ("GC ", "wait for GC", "garbage collection"),
}
# What the runtime does for a goroutine that runs, by functions on its stack (Go 1.19 to 1.27).
_OF_RUNTIME: Final = (
    (_COLLECTION, ("runtime.gcAssistAlloc", "runtime.gcStart", "runtime.gcWriteBarrier")),
    ("allocation", ("runtime.mallocgc", "runtime.growslice")),
    (_C, ("runtime.cgocall",)),
    (_SYSTEM_CALLS, ("syscall.", "internal/runtime/syscall", "runtime/internal/syscall.")),
)


def group_of_wait(sample: Sample) -> str:
    """The group of what its goroutines wait for or do: "locks", "network"; "other" for the rest."""
    state = next((str(label.value) for label in sample.labels if label.key == STATE), "")
    group = _group(operation_of(sample)[0])
    if group == _OTHER:
        group = _group(state.removeprefix("sync."))
    return group_of_running(sample) if group == _RUNNING else group


def group_of_running(sample: Sample) -> str:
    """The group of what a goroutine does that runs, as a CPU profile has it."""
    frames = waiter_of(sample).frames
    groups = (group for group, functions in _OF_RUNTIME if _has(frames, functions))
    return next(groups, _RUNNING)


def _has(frames: Iterable[Frame], functions: tuple[str, ...]) -> bool:
    return any(frame.function.startswith(functions) for frame in frames)


@lru_cache(_MAX_CACHED)
def _group(operation: str) -> str:
    if operation == _C:
        return _C
    fitting = (group for group, words in _GROUPS.items() if operation.startswith(words))
    return next(fitting, _OTHER)
