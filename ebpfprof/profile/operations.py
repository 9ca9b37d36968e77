"""Operations: what a goroutine waited for or did, in words, and the frame that called it."""

import re
from collections.abc import Sequence
from functools import lru_cache

from ebpfprof.profile.model import UNKNOWN, Frame, Location, Sample
from ebpfprof.profile.wakers import waiter_of

_MAX_CACHED = 1 << 16
# By the leaf of a stack, as Go's own profiles have it.
_LEAVES = {
    "runtime.chansend1": "chan send",
    "runtime.chanrecv1": "chan receive",
    "runtime.chanrecv2": "chan receive",
    "runtime.closechan": "chan close",
    "runtime.selectnbrecv": "chan receive",
    "runtime.selectnbsend": "chan send",
    "runtime.selectgo": "select",
    "reflect.chansend0": "chan send",
    "reflect.chansend": "chan send",
    "reflect.chanrecv": "chan receive",
    "internal/poll.(*fdMutex).rwlock": "fd lock",
    "internal/poll.(*fdMutex).rwunlock": "fd unlock",
    "internal/poll.runtime_pollWait": "IO wait",
}
# A stack from the park on, as in a goroutine profile, has these above the leaf.
_PARKS = frozenset(
    {
        "runtime.gopark",
        "runtime.goparkunlock",
        "runtime.chansend",
        "runtime.chanrecv",
        "runtime.semacquire1",
        "runtime.notifyListWait",
        "runtime.netpollblock",
    }
)
_SHIM = re.compile(r"(?:internal/)?sync\.runtime_\w+")
# By the innermost function outside of Go's runtime and sync packages, where it says more than the
# leaf. Callers in the same package then add nothing.
_CALLS = {
    "database/sql.(*DB).conn": "sql connection",
    "golang.org/x/sync/errgroup.(*Group).Go": "errgroup Go",
    "golang.org/x/sync/errgroup.(*Group).Wait": "errgroup Wait",
    "golang.org/x/sync/semaphore.(*Weighted).Acquire": "semaphore Acquire",
    "golang.org/x/sync/singleflight.(*Group).Do": "singleflight Do",
    "golang.org/x/time/rate.(*Limiter).wait": "rate limit",
    "golang.org/x/net/http2.(*ClientConn).awaitOpenSlotForStreamLocked": "HTTP stream",
    "google.golang.org/grpc.(*pickerWrapper).pick": "gRPC connection",
    "google.golang.org/grpc/internal/transport.(*http2Client).NewStream": "gRPC stream",
    "google.golang.org/grpc/internal/transport.(*ClientStream).waitOnHeader": "gRPC answer",
    "google.golang.org/grpc/internal/transport.(*Stream).waitOnHeader": "gRPC answer",
    "google.golang.org/grpc/internal/transport.(*recvBufferReader).readClient": "gRPC answer",
    "io.(*pipe).read": "pipe read",
    "io.(*pipe).write": "pipe write",
    "net.(*Resolver).lookupIPAddr": "DNS lookup",
    "net/http.(*Transport).getConn": "HTTP connection",
    "net/http.(*http2ClientConn).awaitOpenSlotForStreamLocked": "HTTP stream",
    "net/http.(*persistConn).roundTrip": "HTTP answer",
    "time.Sleep": "sleep",
}
_GRPC = "google.golang.org/grpc"
_SYNC = re.compile(r"(?:internal/)?sync\.(?:\(\*(?P<type>\w+)(?:\[.*\])?\)\.)?(?P<function>\w+)")
# The lock of a Cond belongs to the program; a rlocker is a RWMutex in the form of a Locker.
_LOCKS_OF_OTHERS = ("Cond", "rlocker")
_INSIDE_GO = ("runtime", "internal", "sync", "reflect")
STATE = "state"
"""The key of the label that says what the goroutines of a sample of a wall profile do."""
# States in which a goroutine waits for no operation, or no longer; and those of threads.
_NO_OPERATION = frozenset(
    {"running", "runnable", "preempted", "copystack", "locked", "in C", "idle", "scheduling"}
)
_SYSCALLS = ("syscall.", "internal/runtime/syscall.", "runtime/internal/syscall.")
# What cgo makes for a function of C: Go calls that.
_C_LEAF = "runtime.cgocall"
_C_FUNCTION = re.compile(r"\._C2?(?:func)?_(?P<name>\w+)")
# Operations that Go's own library calls for the program, a few frames below it.
_IO = ("IO wait", "syscall")


def operation_of(sample: Sample) -> tuple[str, Frame]:
    """What the goroutines of a sample did, in words, and the frame of the program that did it.

    Of a pair (profile.wakers) it is what the one that waited did.
    """
    state = next((label.value for label in sample.labels if label.key == STATE), "")
    return operation_in(str(state), waiter_of(sample).frames)


def operation_in(state: str, frames: Sequence[Frame]) -> tuple[str, Frame]:
    """The same of a goroutine in a state, the word of Go's tracebacks, with a stack."""
    if state in _NO_OPERATION:
        named = [frame for frame in frames if not frame.function.startswith("[")]
        return state, caller(named or frames)
    if name := _system_call(frames):
        return name, caller_outside_library(frames)
    if frames and frames[0].function == _C_LEAF:
        return _c_call(frames)
    name = operation(frames)
    return name, caller_outside_library(frames) if name in _IO else caller(frames)


def operation(frames: Sequence[Frame]) -> str:
    """What the goroutine waited for, in words; the leaf function if we have no words for it.

    `frames` are those of its stack, innermost first.
    """
    outside = _first_outside(frames)
    if 0 < outside < len(frames) and frames[outside].function in _CALLS:
        return _CALLS[frames[outside].function]
    frames = frames[_count_parks(frames) :]
    if not frames:
        return UNKNOWN
    leaf = frames[0].function
    if leaf in _LEAVES:
        return _LEAVES[leaf]
    name = leaf
    # sync uses itself: a Mutex.Lock that Once.Do calls is Once.Do to the program.
    for frame in frames:
        match = _SYNC.match(frame.function)
        if match is None or (name != leaf and match["type"] in _LOCKS_OF_OTHERS):
            break
        name = ".".join(part for part in match.group("type", "function") if part)
    return name


def waiting_part(sample: Sample) -> tuple[Location, ...]:
    """The stack from the operation on for which its goroutines wait; () if they don't wait.

    A stack from the park on, as in a wall profile, has the runtime's way to the park above it.
    """
    if any(label.key == STATE and label.value in _NO_OPERATION for label in sample.labels):
        return ()
    locations = waiter_of(sample).locations
    at = 0
    while at < len(locations) and _is_way_to_park(locations[at].frames):
        at += 1
    return locations[at:]


def _is_way_to_park(frames: Sequence[Frame]) -> bool:
    return bool(frames) and all(_is_park(frame.function) for frame in frames)


def _system_call(frames: Sequence[Frame]) -> str:
    """ "syscall read" if the goroutine is in a system call, else ""."""
    calls = [frame.function for frame in frames[: _count_syscalls(frames)]]
    if not calls:
        return ""
    name = calls[-1].rpartition(".")[2]
    return f"syscall {name.lower()}" if len(calls) > 1 else "syscall"


def _c_call(frames: Sequence[Frame]) -> tuple[str, Frame]:
    """ "C getaddrinfo", and the frame that called it: the goroutine is in C."""
    names = [match["name"] for frame in frames if (match := _C_FUNCTION.search(frame.function))]
    callers = [frame for frame in frames if not _C_FUNCTION.search(frame.function)]
    return f"C {names[0]}" if names else "C", caller_outside_library(callers)


def _count_syscalls(frames: Sequence[Frame]) -> int:
    """How many frames at the leaf are those of a system call."""
    outside = (at for at, frame in enumerate(frames) if not frame.function.startswith(_SYSCALLS))
    return next(outside, len(frames))


def caller_outside_library(frames: Sequence[Frame]) -> Frame:
    """The innermost frame outside of Go's own library; the outermost if there is none."""
    outside = (frame for frame in frames if not is_in_library(frame.function))
    return next(outside, frames[-1] if frames else Frame(UNKNOWN, "", 0))


def _count_parks(frames: Sequence[Frame]) -> int:
    """How many frames above the leaf of a wait are the runtime's way to the park."""
    last = max(len(frames) - 1, 0)
    return next((at for at in range(last) if not _is_park(frames[at].function)), last)


def _is_park(function: str) -> bool:
    return function in _PARKS or _SHIM.fullmatch(function) is not None


def caller(frames: Sequence[Frame]) -> Frame:
    """The innermost frame outside of Go's runtime, sync, internal and reflect packages.

    The outermost frame if there is none. `frames` are those of a stack, innermost first.
    """
    at = _first_outside(frames)
    if at == len(frames):
        return frames[-1] if frames else Frame(UNKNOWN, "", 0)
    innermost = frames[at]
    if innermost.function in _CALLS:
        package = _package(innermost.function)
        # The packages of gRPC call each other: the program is outside of all of them.
        inside = (f"{_GRPC}.", f"{_GRPC}/") if package.startswith(_GRPC) else f"{package}."
        outside = (frame for frame in frames[at:] if not frame.function.startswith(inside))
        return next(outside, innermost)
    return innermost


def frame_of_program(frames: Sequence[Frame], module: str) -> Frame | None:
    """The innermost frame of the program's main package or another package of its main module.

    None if there is none. `module` is the path of the main module, "" if it is not known.
    """
    return next((frame for frame in frames if is_of_program(frame.function, module)), None)


def is_of_program(function: str, module: str) -> bool:
    """Whether it belongs to package main or to another package of the main module."""
    if function.startswith("main."):
        return True
    path = _package(function.partition("[")[0].partition("(")[0]).replace("%2e", ".")
    return bool(module) and (path == module or path.startswith(f"{module}/"))


def _first_outside(frames: Sequence[Frame]) -> int:
    """The index of the innermost frame outside of _INSIDE_GO; len(frames) if there is none."""
    for index, frame in enumerate(frames):
        if not _is_inside_go(frame.function):
            return index
    return len(frames)


def _package(function: str) -> str:
    slash = function.rfind("/") + 1
    return function[:slash] + function[slash:].partition(".")[0]


@lru_cache(_MAX_CACHED)
def is_in_library(function: str) -> bool:
    """Whether it belongs to Go's own library, whose import paths have no dot before a slash."""
    path = function.partition("[")[0]
    first, separator, _ = path.partition("/")
    package = first if separator else first.partition(".")[0]
    return "." not in package and package != "main"


@lru_cache(_MAX_CACHED)
def _is_inside_go(function: str) -> bool:
    # A module's first path element has a dot ("sync.example/x.F"), so its first slash comes after
    # its first dot; Go's own packages have none, but the path of a type argument may.
    path = function.partition("[")[0]
    first, separator, _ = path.partition("/")
    if separator and "." in first:
        return False
    return re.split(r"[/.]", path, maxsplit=1)[0] in _INSIDE_GO
