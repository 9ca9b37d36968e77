"""The structs and fields of Go's runtime that goruntime.json describes."""

from __future__ import annotations

from typing import Final

# Fields of interest by struct, of package runtime unless it says so; a name with dots reaches into
# nested structs. A version that lacks a field or a struct has no entry for it.
FIELDS: Final[dict[str, tuple[str, ...]]] = {
    "g": (
        *("stack.lo", "stack.hi", "stackguard0", "m", "sched.sp", "sched.pc", "sched.bp"),
        *("syscallsp", "syscallpc", "syscallbp", "param", "atomicstatus", "goid"),
        *("tracking", "trackingSeq", "trackingStamp", "runnableTime", "schedlink"),
        *("waitsince", "waitreason", "lockedm", "parentGoid", "gopc", "startpc", "waiting"),
        *("labels", "timer", "sleepWhen", "selectDone", "goroutineProfiled", "coroarg", "bubble"),
        *("syncGroup", "coroexit"),
    ),
    "coro": ("gp",),
    "synctestGroup": ("root",),
    "synctestBubble": ("id",),
    "m": (
        *("g0", "procid", "gsignal", "tls", "curg", "p", "nextp", "oldp", "id", "mallocing"),
        *("locks", "syscalltick", "profilehz", "spinning", "incgo", "ncgo", "alllink", "lockedg"),
        "createstack",
        *("mstartfn", "waitunlockf", "waitlock", "waitTraceBlockReason", "waitTraceSkip"),
        *("mLockProfile", "mLockProfile.stack", "mLockProfile.cycles", "profStack"),
        *("vdsoSP", "vdsoPC", "mOS.waitsema", "mWaitList.startTicks"),
    ),
    "schedt": (
        *("mnext", "timeToRun", "totalMutexWaitTime", "stwTotalTimeGC", "stwTotalTimeOther"),
    ),
    "cpuStats": (
        *("GCAssistTime", "GCDedicatedTime", "GCIdleTime", "GCPauseTime", "GCTotalTime"),
        *("ScavengeTotalTime", "IdleTime", "UserTime", "TotalTime"),
    ),
    "p": ("id", "status", "m", "mcache", "runqhead", "runqtail", "runq", "runnext", "timers"),
    "sudog": (
        *("g", "next", "prev", "elem", "acquiretime", "releasetime", "ticket", "isSelect"),
        *("success", "waiters", "parent", "waitlink", "waittail", "c"),
    ),
    "hchan": (
        *("qcount", "dataqsiz", "buf", "elemsize", "closed", "timer", "elemtype"),
        *("recvq.first", "sendq.first", "lock"),
    ),
    "timer": ("when", "nextwhen", "period", "arg"),
    "timers": ("heap",),
    "timerWhen": ("timer", "when"),
    "pollDesc": ("fd", "fdseq", "rseq", "rg", "wg", "self"),
    "notifyList": ("wait", "notify", "lock", "head", "tail"),
    "sync.Mutex": ("state", "sema"),
    "sync.RWMutex": ("w", "writerSem", "readerSem", "readerCount", "readerWait"),
    "sync.WaitGroup": ("state", "sema"),
    "sync.Cond": ("L", "notify"),
    "mutex": ("key",),
    "structfield": ("offsetAnon",),
    "bucket": ("next", "allnext", "typ", "hash", "size", "nstk"),
    "blockRecord": ("count", "cycles"),
    "timeHistogram": ("counts",),
    "memRecord": ("active", "future"),
    "memRecordCycle": ("allocs", "frees", "alloc_bytes", "free_bytes"),
    "moduledata": (
        *("pcHeader", "funcnametab", "cutab", "filetab", "pctab", "pclntable", "ftab"),
        *("findfunctab", "minpc", "maxpc", "text", "etext", "gofunc", "next", "types", "etypes"),
    ),
    "heapArena": ("spans",),
    "mheap": (
        *("sweepgen", "sweepDrained", "allspans", "arenas", "central", "spanalloc.inuse"),
        "cachealloc.inuse",
    ),
    "mspan": (
        *("startAddr", "npages", "freeindex", "nelems", "allocBits", "gcmarkBits", "sweepgen"),
        *("allocCount", "spanclass", "state", "allocCountBeforeCache", "elemsize", "specials"),
        *("largeType",),
    ),
    "special": ("next", "offset", "kind"),
    "mcache": ("nextSample", "memProfRate", "tinyAllocs", "alloc", "flushGen"),
    "mstats": (
        *("heapStats", "stacks_sys", "mspan_sys", "mcache_sys", "buckhash_sys", "gcMiscSys"),
        *("other_sys", "last_gc_unix", "last_gc_nanotime", "pause_total_ns", "pause_ns"),
        "pause_end",
        *("numgc", "numforcedgc", "gc_cpu_fraction", "lastHeapInUse"),
    ),
    "consistentHeapStats": ("stats", "gen"),
    "heapStatsDelta": (
        *("committed", "released", "inHeap", "inStacks", "inWorkBufs", "inPtrScalarBits"),
        *("tinyAllocCount", "largeAlloc", "largeAllocCount", "smallAllocCount"),
        *("largeFree", "largeFreeCount", "smallFreeCount"),
    ),
    "gcControllerState": (
        *("gcPercent", "memoryLimit", "gcPercentHeapGoal", "heapGoal", "lastHeapGoal", "heapLive"),
        *("heapMarked", "heapFree", "totalAlloc", "totalFree"),
        *("mappedReady", "triggered", "sweepDistMinTrigger"),
    ),
    "_func": (
        *("entryOff", "nameOff", "args", "deferreturn", "pcsp", "pcfile", "pcln", "npcdata"),
        *("cuOffset", "startLine", "funcID", "flag", "nfuncdata"),
    ),
    "inlinedCall": (
        *("parent", "funcID", "file", "line", "func_", "nameOff", "parentPc", "startLine"),
    ),
}
OLD_NAMES: Final = {
    "entryoff": "entryOff",
    "nameoff": "nameOff",
    "runnableStamp": "trackingStamp",  # in Go 1.19, of runtime.g
    # Of runtime.cpuStats up to Go 1.22.
    "gcAssistTime": "GCAssistTime",
    "gcDedicatedTime": "GCDedicatedTime",
    "gcIdleTime": "GCIdleTime",
    "gcPauseTime": "GCPauseTime",
    "gcTotalTime": "GCTotalTime",
    "scavengeTotalTime": "ScavengeTotalTime",
    "idleTime": "IdleTime",
    "userTime": "UserTime",
    "totalTime": "TotalTime",
}
SEMA_OF_GROUP: Final = 8
"""Go 1.17 (sync/waitgroup.go) has three words: the last one of a WaitGroup whose address is a
multiple of eight is its semaphore, of any other one the first."""
# What versions call the same fields of sync's structs: a Mutex of Go 1.24 and later has one of
# internal/sync inside, and the WaitGroup of Go 1.19 has numbered words.
NAMES_IN_SYNC: Final = {
    "sync.Mutex": {"mu.state": "state", "mu.sema": "sema"},
    "sync.WaitGroup": {"state1": "state", "state2": "sema"},
}
