"""Profiles of every kind, and one whose every text is hostile."""

from dataclasses import replace

from ebpfprof.profile.model import Frame, Label, Location, Profile, Sample, ValueType
from ebpfprof.profilers.cpu.kind import CPU as CPU_KIND
from tests.unit.export.small_profile import LOCK, MAIN, RECEIVE, SMALL, UNKNOWN, WORK

NASTY = "</script><!--<script>\u2028\x1b]0;owned\x07;\n\r\t\u202e\udcff\"'&\\"
"""Markup, escape sequences, separators, text that turns around, bytes that were no UTF-8."""

CPU = CPU_KIND.make_profile(
    [Sample((LOCK, WORK), (3, 30)), Sample((WORK,), (1, 10)), Sample((UNKNOWN,), (1, 10))],
    [MAIN],
    period=10,
    time_ns=0,
    duration_ns=1_000_000_000,
)
HEAP = replace(
    CPU,
    kind="",
    sample_types=(
        ValueType("alloc_objects", "count"),
        ValueType("alloc_space", "bytes"),
        ValueType("inuse_objects", "count"),
        ValueType("inuse_space", "bytes"),
    ),
    samples=(
        Sample((WORK,), (4, 4096, 1, 1 << 20), (Label("bytes", 1024),)),
        Sample((WORK,), (2, 1024, 0, 0), (Label("bytes", 512),)),
        Sample((LOCK, WORK), (0, 0, 1, 1 << 20)),
    ),
)
# A worker that waits for work: idle in a block profile.
SLEEPER = Location(0x406000, MAIN, (Frame("main.(*Pool).worker", "/src/main.go", 40),))
IDLE = replace(SMALL, samples=(Sample((RECEIVE, SLEEPER), (7, 700)), Sample((LOCK,), (1, 4500))))


def nasty(kind: str = "block") -> Profile:
    odd = Location(0x404000, replace(MAIN, filename=f"/{NASTY}"), (Frame(NASTY, NASTY, 7),))
    return replace(
        SMALL,
        kind=kind,
        samples=(Sample((odd, odd), (1, 1), (Label(NASTY, NASTY), Label("n", 1, NASTY))),),
        mappings=(replace(MAIN, filename=f"/{NASTY}"),),
        comments=(NASTY,),
        sample_types=(ValueType(NASTY, NASTY), ValueType("delay", NASTY)),
    )
