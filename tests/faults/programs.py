"""The programs of ours on which `explain` is judged: one fault each or none.

Most are services of tests/targets/faults; those that call C are in tests/targets/faultcgo. Those
that need modules of others are in tests/faults/modules, which are built with the Go module proxy.

python -m tests.faults.programs    builds these, unless they are in the cache
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Final

from tests.backends.building import NETWORK
from tests.faults.environment import Environment, running
from tests.kernel.programs import NEWEST, program
from tests.targets_run import Target
from tests.toolchains import cache_dir, locked, toolchain

PLAIN: Final = Environment()
CGO: Final = Environment(mode="cgo")
DEBUGGED: Final = Environment(variables=("GODEBUG=gctrace=1,schedtrace=1000",))

MODULES: Final = Path(__file__).parent / "modules"


@cache
def built_module(name: str, modules: Path = MODULES) -> Path:
    """A program of a folder with a go.mod, by default tests/faults/modules, built.

    Raises ToolchainError.
    """
    # Go builds again what has changed. Each checkout has programs of its own.
    folder = cache_dir() / "faults" / sha256(str(modules).encode()).hexdigest()[:16]
    path = folder / name
    with locked(folder / f"{name}.lock"):
        command = ("build", "-buildvcs=false", "-o", path, f"./{name}")
        toolchain(NEWEST).go(*command, cwd=modules, env=NETWORK)
    return path


@dataclass(frozen=True)
class JudgedProgram(ABC):
    """A program, and the kind of the finding that must come first; None if it is healthy.

    `also` are kinds that name the same cause in other words, so that they are right, too.
    """

    name: str
    kind: str | None
    also: tuple[str, ...] = ()
    environment: Environment = PLAIN

    @property
    def right(self) -> tuple[str, ...]:
        """The kinds of which one must come first; none for a healthy program."""
        return () if self.kind is None else (self.kind, *self.also)

    @abstractmethod
    def build(self) -> None:
        """Build what start() runs, unless it is in the cache. Raises ToolchainError."""

    @abstractmethod
    def start(self) -> AbstractContextManager[Target]:
        """Run it: it is under load, and its fault shows. Its `ready` line has the pid.

        Raises TargetError or ToolchainError.
        """


@dataclass(frozen=True)
class FaultProgram(JudgedProgram):
    """A program with a planted fault, or a healthy one.

    `is_module`: it is in tests/faults/modules. If not, `folder` of tests/targets has it, and
    `service` is its argument; "" is its name.
    """

    is_module: bool = False
    folder: str = "faults"
    service: str = ""

    def build(self) -> None:
        """See JudgedProgram.build()."""
        _ = self._path

    def start(self) -> AbstractContextManager[Target]:
        """See JudgedProgram.start()."""
        arguments = () if self.is_module else (self.service or self.name,)
        return running(self._path, *arguments, environment=self.environment)

    @property
    def _path(self) -> Path:
        if self.is_module:
            return built_module(self.name)
        return program(self.folder, mode=self.environment.mode)


PROGRAMS: Final = (
    FaultProgram("deadlock", "deadlock"),
    FaultProgram("channeldeadlock", "deadlock"),
    FaultProgram("lostsignal", "lost_wake", also=("hang",)),
    FaultProgram("neverdone", "lost_wake", also=("hang",)),
    FaultProgram("hang", "hang"),
    FaultProgram("leak", "goroutine_leak"),
    FaultProgram("tickerleak", "goroutine_leak"),
    FaultProgram("hotlock", "hot_lock"),
    FaultProgram("slowholder", "hot_lock"),
    FaultProgram("rwlock", "hot_lock"),
    FaultProgram("connpool", "starved_pool"),
    FaultProgram("sqlpool", "starved_pool"),
    FaultProgram("transport", "starved_pool"),
    FaultProgram("weighted", "starved_pool", is_module=True),
    FaultProgram("grpcquota", "starved_pool", is_module=True),
    FaultProgram("slowpeer", "slow_peer"),
    FaultProgram("slowdns", "slow_dns"),
    FaultProgram("slowconnect", "slow_connect"),
    FaultProgram("slowtls", "slow_connect"),
    FaultProgram("slowconsumer", "slow_consumer"),
    # Its only decoder is too slow: requests wait for it. Those behind it have nothing to do.
    FaultProgram("slowstage", "slow_consumer"),
    FaultProgram("slowproducer", "slow_producer"),
    FaultProgram("crowdedlock", "hot_lock", also=("convoy",)),
    FaultProgram("throttled", "throttling", environment=Environment(cpus=0.5)),
    FaultProgram(
        "overcommitted",
        "gomaxprocs",
        also=("throttling",),
        service="throttled",
        environment=Environment(cpus=1, variables=("GOMAXPROCS=16",)),
    ),
    FaultProgram(
        "fewprocessors",
        "few_processors",
        also=("gomaxprocs",),
        environment=Environment(variables=("GOMAXPROCS=1",)),
    ),
    FaultProgram("saturated", "few_processors", service="fewprocessors"),
    FaultProgram("neighbours", "neighbours", environment=Environment(neighbours=4)),
    FaultProgram("collections", "collections", environment=Environment(variables=("GOGC=10",))),
    FaultProgram(
        "heaplimit", "heap_limit", environment=Environment(variables=("GOMEMLIMIT=92MiB",))
    ),
    FaultProgram(
        "gcoff",
        "never_collected",
        also=("memory_growth",),
        environment=Environment(variables=("GOGC=off",)),
    ),
    # The function that allocates them is what has to be changed.
    FaultProgram("smallobjects", "collections", also=("hot_function",)),
    FaultProgram("untrimmed", "memory_growth"),
    FaultProgram("nearlimit", "memory_limit", environment=Environment(memory_mib=256)),
    FaultProgram("regexps", "hot_function"),
    FaultProgram("jsonheavy", "hot_function"),
    # Requests also wait for each other's lines.
    FaultProgram("logging", "hot_function", also=("hot_lock",)),
    FaultProgram("timers", "timers"),
    FaultProgram("stuckcgo", "cgo_calls", folder="faultcgo", service="stuck", environment=CGO),
    FaultProgram("syscalls", "system_calls"),
    FaultProgram("lockedthreads", "locked_threads"),
    FaultProgram("spinning", "spinning"),
    FaultProgram("yielding", "spinning"),
    FaultProgram("fsync", "slow_disk", environment=Environment(writes_per_second=100)),
    FaultProgram(
        "racebuild", "race_build", service="inventory", environment=Environment(mode="-race")
    ),
    FaultProgram("debugsettings", "debug_settings", service="inventory", environment=DEBUGGED),
    FaultProgram("batch", None),
    FaultProgram("steadyheap", None),
    FaultProgram("shortcgo", None, folder="faultcgo", service="short", environment=CGO),
    FaultProgram("fileserver", None),
    FaultProgram("quota", None, environment=Environment(cpus=1.5)),
    FaultProgram("tlsserver", None),
    FaultProgram("pipeline", None),
    FaultProgram("inventory", None),
    FaultProgram("idleserver", None),
    FaultProgram("busyserver", None),
    FaultProgram("burstyserver", None),
    FaultProgram("workerpool", None),
    FaultProgram("sqlserver", None),
    FaultProgram("background", None),
    FaultProgram("subscribers", None),
    FaultProgram("cron", None),
)
