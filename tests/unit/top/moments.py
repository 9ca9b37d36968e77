"""Moments of `ebpfprof top` made up for tests."""

from __future__ import annotations

from collections.abc import Sequence

from ebpfprof.profile.losses import Loss
from ebpfprof.profile.model import Frame, Label, Location, Mapping, Sample
from ebpfprof.profilers.waits.kinds import BLOCK
from ebpfprof.top.rows import Moment, Snapshot, TargetLine
from ebpfprof.top.state import TopView
from ebpfprof.top.table import TopTable

S = 1_000_000_000
MAIN = Mapping(0x400000, 0x500000, 0, "/srv/api", "")
LOCK = Location(0x400001, MAIN, (Frame("sync.(*Mutex).Lock", "/go/sync/mutex.go", 46),))
RECEIVE = Location(0x400002, MAIN, (Frame("runtime.chanrecv1", "/go/runtime/chan.go", 509),))


def calling(number: int, *functions: str) -> Location:
    """A call in /src/shop.go, line `number`; inlined ones first."""
    frames = tuple(Frame(name, "/src/shop.go", number) for name in functions)
    return Location(0x400100 + number, MAIN, frames)


def wait(count: int, ns: int, *stack: Location, labels: Sequence[Label] = ()) -> Sample:
    return Sample(stack, (count, ns), tuple(labels))


SHOP = (
    wait(100, 3 * S, LOCK, calling(79, "main.(*PriceCache).Get"), calling(50, "main.serve")),
    wait(
        7,
        S,
        LOCK,
        calling(166, "main.refill", "main.(*Stock).Reserve"),
        labels=[Label("user", "anna"), Label("bytes", 512, "bytes")],
    ),
    wait(1000, S // 2, RECEIVE, calling(141, "main.(*InvoicePool).Print"), calling(1, "main.run")),
    wait(3, 2 * S, RECEIVE, calling(150, "main.worker")),
)


def moment(
    samples: Sequence[Sample] = SHOP,
    *,
    before: Sequence[Sample] = (),
    pids: Sequence[int] = (1234,),
    name: str = "shop",
    losses: Sequence[Loss] = (),
    ending: str = "",
    notes: Sequence[str] = (),
    kind: str = "block",
) -> Moment:
    """One of two seconds, of a block profile."""
    table = TopTable(kind)
    for second, seen in ((1, before), (3, samples)):
        profile = BLOCK.make_profile(seen, [MAIN], time_ns=1, duration_ns=1, comments=[])
        reading = table.read([Snapshot(pid, second * S, profile) for pid in pids])
    watched = [TargetLine(pid, name, "go1.27.3", ending) for pid in pids]
    return Moment({kind: reading}, watched, 3 * S, 0.021, losses, notes)


def view(at: Moment | None = None, *, hide_idle: bool = True) -> TopView:
    at = at or moment()
    return TopView(at, ["block", "mutex"], "block", hide_idle=hide_idle)
