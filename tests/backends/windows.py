"""Windows that nobody recorded, for sinks; and settings of a sink."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ebpfprof.agent.settings import SinkSettings
from ebpfprof.profile.model import Label, Profile, Sample
from ebpfprof.profile.service import ServiceIdentity, ServiceWindow
from ebpfprof.profilers.registry import kind_named
from tests.unit.export.small_profile import LOCK, MAIN, RECEIVE, WORK

IDENTITY = ServiceIdentity(
    "shop",
    namespace="prod",
    version="v7",
    node="n1",
    pod="shop-5d8f",
    container="app",
    labels={"team.name": "till"},
)
LENGTH_S = 60.0


def made_up(
    kind: str, start_s: float, *, stacks: int = 2, labels: tuple[Label, ...] = ()
) -> Profile:
    """A profile of a minute, with a value that no other sample has in each of its values."""
    found = kind_named(kind)
    places = [(RECEIVE, WORK), (LOCK, WORK), (WORK,)]
    samples = [
        Sample(
            tuple(replace(each, address=each.address + number // 3) for each in places[number % 3]),
            tuple(1 + 10 * number + place for place in range(len(found.sample_types))),
            labels,
        )
        for number in range(stacks)
    ]
    return found.make_profile(
        samples,
        [MAIN],
        period=10_000_000 if kind == "cpu" else 1,
        time_ns=round(start_s * 1e9),
        duration_ns=round(LENGTH_S * 1e9),
        comments=["every event was recorded"],
    )


def window_of(
    start_s: float, profiles: Mapping[str, Profile] | None = None, *, pid: int = 4711
) -> ServiceWindow:
    """A window of a minute, by default with a block and a CPU profile."""
    if profiles is None:
        profiles = {kind: made_up(kind, start_s) for kind in ("block", "cpu")}
    times = (start_s, start_s + LENGTH_S)
    return ServiceWindow(IDENTITY, pid, 9, "shop", "go1.27.3", *times, profiles)


def sink(kind: str, url: str, **more: object) -> SinkSettings:
    """Settings of a sink; answers may take half a minute."""
    return SinkSettings(kind, kind, url=url, **{"timeout": 30.0, **more})  # type: ignore[arg-type]  # mypy can't know the fields
