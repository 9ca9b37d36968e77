"""A logical call, Go's or native, and what its function is to Go's runtime."""

from dataclasses import dataclass
from enum import Enum, unique


@unique
class FuncRole(Enum):
    """What a function is to the runtime (abi.FuncID, whose numbers change between versions)."""

    NORMAL = "normal"
    ABORT = "abort"
    ASMCGOCALL = "asmcgocall"
    ASYNC_PREEMPT = "asyncPreempt"
    CGOCALLBACK = "cgocallback"
    COROSTART = "corostart"
    DEBUG_CALL = "debugCallV2"
    GC_BG_MARK_WORKER = "gcBgMarkWorker"
    GOEXIT = "goexit"
    GOGO = "gogo"
    GOPANIC = "gopanic"
    HANDLE_ASYNC_EVENT = "handleAsyncEvent"
    MCALL = "mcall"
    MORESTACK = "morestack"
    MSTART = "mstart"
    PANICWRAP = "panicwrap"
    RT0_GO = "rt0_go"
    RUNTIME_MAIN = "runtime_main"
    RUN_FINALIZERS = "runFinalizers"
    RUN_CLEANUPS = "runCleanups"
    SIGPANIC = "sigpanic"
    SYSTEMSTACK = "systemstack"
    SYSTEMSTACK_SWITCH = "systemstack_switch"
    WRAPPER = "wrapper"

    @property
    def elides_wrapper(self) -> bool:
        """Whether Go leaves out a wrapper that called a function of this role.

        It keeps a wrapper that called a panic instead of the function that it wraps
        (elideWrapperCalling in runtime/traceback.go).
        """
        return self not in (FuncRole.GOPANIC, FuncRole.SIGPANIC, FuncRole.PANICWRAP)


@dataclass(frozen=True, slots=True)
class Frame:
    """One logical call: a function, and where in it. Names are written as Go's pprof writes them.

    `start_line` is the line of the `func` keyword, 0 before Go 1.20. Where Go's tables name no
    file, `file` is "?" and `line` 0. `pc` is the address that was looked up; for the callers of an
    inlined call it is the address in the function's code at which Go sees them (the call's
    parentPc). Native functions have the role NORMAL.
    """

    function: str
    file: str
    line: int
    start_line: int
    role: FuncRole
    pc: int
