"""The programs on which `explain` is judged: one fault each or none.

Most are services of tests/targets/faults. Those that need modules of others are in
tests/faults/modules, which are built with the Go module proxy.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

from tests.backends.building import NETWORK
from tests.kernel.programs import NEWEST, program
from tests.targets_run import Target
from tests.toolchains import cache_dir, locked, toolchain

MODULES: Final = Path(__file__).parent / "modules"


@cache
def built_module(name: str) -> Path:
    """A program of tests/faults/modules, built. Raises ToolchainError."""
    path = cache_dir() / "faults" / name
    with locked(cache_dir() / "faults" / f"{name}.lock"):
        command = ("build", "-buildvcs=false", "-o", path, f"./{name}")
        toolchain(NEWEST).go(*command, cwd=MODULES, env=NETWORK)
    return path


@dataclass(frozen=True)
class FaultProgram:
    """A program, and the kind of the finding that must come first; None if it is healthy.

    `also` are kinds that name the same cause in other words, so that they are right, too.
    `is_module`: it is in tests/faults/modules.
    """

    name: str
    kind: str | None
    also: tuple[str, ...] = ()
    is_module: bool = False

    @property
    def right(self) -> tuple[str, ...]:
        """The kinds of which one must come first; none for a healthy program."""
        return () if self.kind is None else (self.kind, *self.also)

    @property
    def path(self) -> Path:
        """The built program. Raises ToolchainError."""
        return built_module(self.name) if self.is_module else program("faults")

    def start(self) -> Target:
        """Run it: it is under load, and its fault shows. Raises TargetError or ToolchainError."""
        return Target.start(self.path, *(() if self.is_module else (self.name,)))


PROGRAMS: Final = (
    FaultProgram("deadlock", "deadlock"),
    FaultProgram("channeldeadlock", "deadlock", also=("hang",)),
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
    FaultProgram("slowconsumer", "slow_consumer"),
    # Both say that its only decoder is too slow: for those before it, or for those behind it.
    FaultProgram("slowstage", "starved_consumer", also=("slow_consumer",)),
    FaultProgram("crowdedlock", "hot_lock", also=("convoy",)),
    FaultProgram("idleserver", None),
    FaultProgram("busyserver", None),
    FaultProgram("burstyserver", None),
    FaultProgram("workerpool", None),
    FaultProgram("sqlserver", None),
    FaultProgram("background", None),
    FaultProgram("subscribers", None),
    FaultProgram("cron", None),
)
