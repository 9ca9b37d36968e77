"""A small profile of two stacks, as the model has it and as profile.proto has it."""

import gzip

from ebpfprof.export import pprof
from ebpfprof.export.pprof.schema import profile_class
from ebpfprof.export.proto_messages import ProtoMessage
from ebpfprof.profile.model import Frame, Location, Mapping, Profile, Sample
from ebpfprof.profilers.waits.kinds import BLOCK
from tests.unit.varints import varint

MAIN = Mapping(0x400000, 0x500000, 0x1000, "/srv/api", "c0ffee")
LIBC = Mapping(0x7F0000000000, 0x7F0000100000, 0, "/lib/libc.so.6", "")
# RWMutex.Lock with Mutex.Lock inlined, called by main.work.
LOCK = Location(
    0x401000,
    MAIN,
    (
        Frame("sync.(*Mutex).Lock", "/go/sync/mutex.go", 46, 45),
        Frame("sync.(*RWMutex).Lock", "/go/sync/rwmutex.go", 146, 140),
    ),
)
WORK = Location(0x402000, MAIN, (Frame("main.work", "/src/main.go", 12, 10),))
RECEIVE = Location(0x403000, MAIN, (Frame("runtime.chanrecv1", "/go/runtime/chan.go", 442),))
UNKNOWN = Location(0x7F0000000010, LIBC, ())
SMALL = BLOCK.make_profile(
    [Sample((RECEIVE, WORK), (2, 300)), Sample((LOCK, WORK), (1, 4500))],
    [MAIN, LIBC],
    time_ns=1_700_000_000_000_000_000,
    duration_ns=30_000_000_000,
    comments=["every event was recorded"],
)


# The profile SMALL, written down from profile.proto's field numbers with an encoder of the wire
# format of its own, so that a mistake in the schema's table shows.


def field(number: int, value: int | bytes | str) -> bytes:
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    data = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(data)) + data


def numbers(**of_fields: int) -> bytes:
    """A message of integers: f1=5, f4=6 is field 1 with 5 and field 4 with 6."""
    return b"".join(field(int(name[1:]), value) for name, value in of_fields.items())


def packed(*values: int) -> bytes:
    return b"".join(varint(value) for value in values)


STRINGS = [
    "",
    "contentions",
    "count",
    "delay",
    "nanoseconds",
    "/srv/api",
    "c0ffee",
    "/lib/libc.so.6",
    "sync.(*Mutex).Lock",
    "/go/sync/mutex.go",
    "sync.(*RWMutex).Lock",
    "/go/sync/rwmutex.go",
    "main.work",
    "/src/main.go",
    "runtime.chanrecv1",
    "/go/runtime/chan.go",
    "every event was recorded",
]
GOLDEN = b"".join(
    [
        # sample_type
        field(1, numbers(f1=1, f2=2)),
        field(1, numbers(f1=3, f2=4)),
        # sample: location ids, values
        field(2, field(1, packed(1, 2)) + field(2, packed(1, 4500))),
        field(2, field(1, packed(3, 2)) + field(2, packed(2, 300))),
        # mapping: id, start, limit, offset, file name, build id, has_functions
        field(3, numbers(f1=1, f2=0x400000, f3=0x500000, f4=0x1000, f5=5, f6=6, f7=1)),
        field(3, numbers(f1=2, f2=0x7F0000000000, f3=0x7F0000100000, f5=7)),
        # location: id, mapping, address, lines (function, line)
        field(
            4,
            numbers(f1=1, f2=1, f3=0x401000)
            + field(4, numbers(f1=1, f2=46))
            + field(4, numbers(f1=2, f2=146)),
        ),
        field(4, numbers(f1=2, f2=1, f3=0x402000) + field(4, numbers(f1=3, f2=12))),
        field(4, numbers(f1=3, f2=1, f3=0x403000) + field(4, numbers(f1=4, f2=442))),
        # function: id, name, system name, file name, start line
        field(5, numbers(f1=1, f2=8, f3=8, f4=9, f5=45)),
        field(5, numbers(f1=2, f2=10, f3=10, f4=11, f5=140)),
        field(5, numbers(f1=3, f2=12, f3=12, f4=13, f5=10)),
        field(5, numbers(f1=4, f2=14, f3=14, f4=15)),
        *(field(6, text) for text in STRINGS),
        # time, duration, period type, period, comment
        field(9, 1_700_000_000_000_000_000),
        field(10, 30_000_000_000),
        field(11, numbers(f1=1, f2=2)),
        field(12, 1),
        field(13, packed(16)),
    ]
)


def message_of(profile: Profile) -> ProtoMessage:
    return profile_class().FromString(gzip.decompress(pprof.encode(profile)))


def strings_of(message: ProtoMessage) -> list[str]:
    return [text.decode() for text in message.string_table]
