"""Windows of services that nobody recorded, and a clock that the test moves."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ebpfprof.profile.model import Frame, Location, Profile, Sample
from ebpfprof.profile.service import ServiceIdentity, ServiceWindow
from ebpfprof.profilers.account import RecordingAccount
from ebpfprof.profilers.registry import kind_named
from ebpfprof.ring.writer import Ring
from tests.unit.export.small_profile import MAIN, RECEIVE, SMALL, WORK

SHOP = ServiceIdentity("shop", namespace="prod", pod="shop-7", labels={"team": "checkout"})
API = ServiceIdentity("api")
START_S = 1_790_000_000.0  # 2026-09-21 14:13:20 UTC
WINDOW_S = 60.0
NS = 1_000_000_000
_BOOTTIME_NS = time.clock_gettime_ns(time.CLOCK_BOOTTIME)


@dataclass
class Clock:
    """Unix time, in seconds."""

    now_s: float = START_S

    def __call__(self) -> float:
        return self.now_s


def profile_of(
    waits: int, delay_ns: int, start_s: float, *, stacks: int = 1, bulk_bytes: int = 0
) -> Profile:
    """A block profile of a minute, with that many waits in each stack, and an account.

    Its file takes `bulk_bytes` more.
    """
    samples = [
        Sample((RECEIVE, replace(WORK, address=WORK.address + number)), (waits, delay_ns))
        for number in range(stacks)
    ]
    profile = kind_named("block").make_profile(
        samples,
        SMALL.mappings,
        time_ns=round(start_s * NS),
        duration_ns=round(WINDOW_S * NS),
    )
    account = RecordingAccount(
        "block",
        "block profile of process 7 (shop, go1.27)",
        "every event",
        profile.duration_ns,
        events=waits * stacks,
    )
    profile = profile.accounted(account)
    bulk = random.Random(start_s).randbytes(bulk_bytes * 8 // 9).hex()
    return replace(profile, comments=(*profile.comments, bulk)) if bulk else profile


def goroutines_of(number: int, start_s: float) -> Profile:
    """A goroutine profile at the end of a minute."""
    return kind_named("goroutine").make_profile(
        [Sample((RECEIVE, WORK), (number,))],
        SMALL.mappings,
        time_ns=round(start_s * NS),
        duration_ns=round(WINDOW_S * NS),
    )


def window(
    start_s: float = START_S,
    profiles: Sequence[Profile] | None = None,
    *,
    identity: ServiceIdentity = SHOP,
    pid: int = 42,
    began_s: float = START_S - 3600,
    length_s: float = WINDOW_S,
) -> ServiceWindow:
    """What was recorded of a process in a minute: by default three waits of a second together."""
    profiles = [profile_of(3, NS, start_s)] if profiles is None else profiles
    return ServiceWindow(
        identity,
        pid,
        boottime_of(began_s),
        identity.service,
        "go1.27.3",
        start_s,
        start_s + length_s,
        {profile.kind: profile for profile in profiles},
    )


def boottime_of(began_s: float) -> int:
    """A CLOCK_BOOTTIME so far from START_S as `began_s`; always positive."""
    return max(1, _BOOTTIME_NS + round((began_s - START_S) * NS))


def ring(folder: Path, clock: Clock, **bounds: float) -> Ring:
    """A ring with this clock that leaves nothing free in the file system unless told to."""
    chosen: dict[str, float] = {"max_bytes": 64 << 20, "max_age_s": 7 * 86400, "keep_free_bytes": 0}
    chosen |= bounds
    return Ring(
        folder,
        int(chosen["max_bytes"]),
        chosen["max_age_s"],
        int(chosen["keep_free_bytes"]),
        clock=clock,
        boottime_ns=lambda: boottime_of(clock()),
    )


def location(function: str, address: int) -> Location:
    return Location(address, MAIN, (Frame(function, "/src/main.go", 7),))
