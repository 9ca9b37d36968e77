"""Facts about Go's runtime by version: struct layouts, function ids, wait reasons, stacks, labels.

They are data: data/goruntime.json, which tests/tools/generate_goruntime.py writes from real
toolchains. amd64 only.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from types import MappingProxyType
from typing import Any, Final

from symbolizer.errors import UnsupportedGoVersion
from symbolizer.frames import FuncRole
from symbolizer.go.version import GoVersion

_DATA: Final = "data/goruntime.json"
_WITHOUT_REGISTERS: Final = "noregabi"
"""How the experiments of Go 1.17 begin that pass arguments on the stack, as older versions do."""

_OLD_ROLE_NAMES: Final = {"runfinq": "runFinalizers", "jmpdefer": "normal"}


@dataclass(frozen=True, slots=True)
class StructLayout:
    """A runtime struct: its size and the offsets of its fields, in bytes."""

    size: int
    fields: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class ProfileStacks:
    """How the runtime records the stacks of its block and mutex profiles (runtime/mprof.go).

    Depths are in logical frames. `max_depth` is that of events, unless GODEBUG sets another;
    `runtime_lock_depth` that of releases of the runtime's own locks, which are always unwound by
    tables, 0 if the version records none. Events are unwound by tables in Go 1.22 and older
    (`unwinds_by_tables`): then all wrappers are left out. Else by frame pointers, unless C called
    back: then a wrapper is left out only where the function that it wraps was inlined into it
    (runtime/symtab.go, Frames.Next).
    """

    max_depth: int
    unwinds_by_tables: bool
    runtime_lock_depth: int


@dataclass(frozen=True, slots=True)
class TracebackRules:
    """How a Go version writes tracebacks (runtime/traceback.go), and the text of count profiles.

    Of a stack it shows the first `inner_frames` and the last `outer_frames` logical frames; in Go
    1.19, which has `most_frames` instead, those of that many physical frames.
    """

    most_frames: int
    inner_frames: int
    outer_frames: int
    preempted_is_trap: bool
    """Whether asyncPreempt interrupts its caller at its pc, not behind a call, as sigpanic does."""
    liveness_of_outermost: bool
    """Whether the outermost call inlined at an instruction decides which arguments are live."""
    shows_finalizers: bool
    """Whether runtime.runFinalizers and runCleanups are shown."""
    shows_exported_methods: bool
    """Whether an exported method of the runtime counts as exported only if its type is, too."""
    shortened_type_arguments: int
    """How many lists of type arguments of a name become "[...]"; 0: the linker did it already."""
    shows_leaks: bool
    durable_reasons: tuple[str, ...]
    """Wait reasons, as in RuntimeLayout.wait_reasons, that are durable within a synctest bubble."""
    durable_only_while_waiting: bool
    bubble: str
    """What precedes the number of a synctest bubble, "" before Go 1.24."""
    labels: str
    """Where the header has labels: "inside" the brackets, "behind" them, or "" nowhere."""
    labels_by_default: bool
    """Whether it has them unless GODEBUG or go.mod says otherwise."""
    quotes_bytes: bool
    """Whether bytes of a label that are not UTF-8 are written as they are; as U+FFFD before."""
    skips_callers_of_mallocgc: bool
    """Whether stacks of the memory profile begin with the caller of that (runtime/mprof.go)."""
    unequal_totals: bool
    """Whether the totals of a heap profile never equal those in use (writeHeapInternal)."""
    hidden_prefixes: tuple[str, ...]
    """How names of innermost frames begin that ?debug=1 hides (runtime/pprof/pprof.go)."""


@dataclass(frozen=True, slots=True)
class RuntimeLayout:
    """The runtime of one minor version of Go.

    Structs are named without "runtime.", those of package sync with "sync."; a field's name with
    dots reaches into nested structs.
    """

    version: str
    """"1.27"."""
    structs: Mapping[str, StructLayout]
    roles: tuple[FuncRole, ...]
    """By function id."""
    wait_reasons: Mapping[str, int]
    """Number of each runtime.waitReason, named without that prefix: "ChanReceive"."""
    wait_reason_texts: Mapping[str, str]
    """What Go's tracebacks say for each wait reason: "chan receive"."""
    stop_reasons: tuple[str, ...]
    """Why the world is stopped, by runtime.stwReason; () where a version does not say."""
    profile_stacks: ProfileStacks
    tracebacks: TracebackRules
    labels_in_slice: bool
    """Whether runtime.g.labels is a slice; a map in Go 1.23 and older (runtime/pprof/label.go)."""
    poll_data_shifts: tuple[int, int]
    """By how many bits to shift the data of an epoll event right, as a signed number, and then
    left: that is the address of its runtime.pollDesc (runtime/tagptr_64bit.go)."""
    size_classes: tuple[int, ...]
    """The sizes of small objects (bytes), by size class; class 0 is that of large ones, 0 here."""
    special_kinds: Mapping[str, int]
    """Number of each runtime.special.kind, named without "_KindSpecial": "Finalizer"."""
    memory_limit_headroom_percent: int
    """How far the heap's goal stays below a memory limit, 1 MiB at least (runtime/mgcpacer.go)."""
    time_histogram_bits: tuple[int, int]
    """Of a runtime.timeHistogram: buckets double from values (ns) with the first number of bits on,
    and each has two to the power of the second number of equal parts (runtime/histogram.go)."""
    pclntab_magic: int
    """The first four bytes of a program's pclntab, as a number."""

    def offset(self, struct: str, field: str) -> int:
        """Return a field's offset in bytes; raise KeyError if this version has no such field."""
        return self.structs[struct].fields[field]

    def has(self, struct: str, field: str) -> bool:
        """Whether the version has the struct, with that field."""
        return struct in self.structs and field in self.structs[struct].fields

    def is_of(self, version: GoVersion) -> bool:
        """Whether it is the layout of that version, and not the nearest known one."""
        return self.version == f"1.{version.minor}" and version.stage != "devel"

    def size(self, struct: str) -> int:
        """Return a struct's size in bytes."""
        return self.structs[struct].size

    def role(self, func_id: int) -> FuncRole:
        """Return the role of a function id; NORMAL for ids that Go does not have."""
        return self.roles[func_id] if 0 <= func_id < len(self.roles) else FuncRole.NORMAL


def layout_for(version: GoVersion, *, allow_unknown_version: bool = False) -> RuntimeLayout:
    """Return the layout of a version's runtime.

    Raises UnsupportedGoVersion for an unknown version, and for a development version, whose layout
    may change, unless `allow_unknown_version`: then the nearest known layout is returned. Raises it
    in any case for programs that pass arguments on the stack, as versions do that are older than
    the first known one, and for experiments whose layout together, or with an old patch release, is
    unknown.
    """
    for name in version.experiments:
        if name.startswith(_WITHOUT_REGISTERS):
            raise UnsupportedGoVersion(
                f"the program was built with GOEXPERIMENT={name}, which passes arguments on the "
                "stack",
                remedy="build it without that experiment",
            )
    minors = _known_minors()
    if version.minor in range(minors[0]):
        raise UnsupportedGoVersion(
            f"the program was built with {version}; Go 1.{minors[0]} or newer is needed"
        )
    known = version.minor in minors and version.stage != "devel"
    if not known and not allow_unknown_version:
        raise UnsupportedGoVersion(
            f"the program was built with {version}, whose runtime layout is unknown; "
            f"known are {known_range()}",
            can_be_tried=True,
        )
    nearest = min(minors, key=lambda minor: (abs(minor - version.minor), -minor))
    entry = _data()[f"1.{nearest}"]
    experiments = sorted(entry["experiments"].keys() & set(version.experiments))
    unknown = [name for name in version.experiments if name in _moving() - {*experiments}]
    if unknown:
        raise UnsupportedGoVersion(
            f"the program was built with GOEXPERIMENT={unknown[0]}, whose runtime layout is "
            f"unknown for Go 1.{version.minor}",
            remedy="build it without that experiment",
        )
    earlier = [patch for patch in entry.get("earlier", {}) if version.patch <= int(patch)]
    is_earlier = known and not version.stage and bool(earlier)
    return _layout(
        f"1.{nearest}", tuple(experiments), min(earlier, key=int) if is_earlier else None
    )


def known_range() -> str:
    """Return the known versions as text: "go1.17 to go1.27"."""
    runs: list[list[int]] = []
    for minor in _known_minors():
        if runs and runs[-1][-1] == minor - 1:
            runs[-1].append(minor)
        else:
            runs.append([minor])
    return ", ".join(
        f"go1.{run[0]}" if len(run) == 1 else f"go1.{run[0]} to go1.{run[-1]}" for run in runs
    )


@cache
def _data() -> dict[str, Any]:
    text = files("symbolizer").joinpath(_DATA).read_text(encoding="utf-8")
    data: dict[str, Any] = json.loads(text)
    return data


@cache
def _moving() -> frozenset[str]:
    """The experiments that move fields, each in some version."""
    return frozenset(name for entry in _data().values() for name in entry["experiments"])


@cache
def _known_minors() -> tuple[int, ...]:
    return tuple(sorted(int(version.removeprefix("1.")) for version in _data()))


@cache
def _layout(version: str, experiments: tuple[str, ...], earlier: str | None) -> RuntimeLayout:
    """The layout of a minor version; `earlier` is the last patch release that differs from it."""
    entry = _data()[version]
    other = entry["earlier"][earlier] if earlier is not None else {}
    changed = dict(other.get("structs", {}))
    for name in experiments:
        rows_of_it = entry["experiments"][name]
        if changed.keys() & rows_of_it.keys():
            raise UnsupportedGoVersion(
                f"the program was built with GOEXPERIMENT={','.join(experiments)}, whose runtime "
                "layout is unknown for its version",
                remedy="build it without these experiments",
            )
        changed |= rows_of_it
    rows = entry["structs"] | changed
    entry = entry | other
    structs = {
        name: StructLayout(row["size"], MappingProxyType(row["fields"]))
        for name, row in rows.items()
    }
    names = sorted(entry["func_ids"], key=entry["func_ids"].__getitem__)
    return RuntimeLayout(
        version=version,
        structs=MappingProxyType(structs),
        roles=tuple(FuncRole(_OLD_ROLE_NAMES.get(name, name)) for name in names),
        wait_reasons=MappingProxyType(entry["wait_reasons"]),
        wait_reason_texts=MappingProxyType(entry["wait_reason_texts"]),
        stop_reasons=tuple(entry["stop_reasons"]),
        profile_stacks=ProfileStacks(**entry["profile_stacks"]),
        tracebacks=_traceback_rules(entry["tracebacks"]),
        labels_in_slice=entry["labels_in_slice"],
        poll_data_shifts=tuple(entry["poll_data_shifts"]),
        size_classes=tuple(entry["size_classes"]),
        special_kinds=MappingProxyType(entry["special_kinds"]),
        memory_limit_headroom_percent=entry["memory_limit_headroom_percent"],
        time_histogram_bits=tuple(entry["time_histogram_bits"]),
        pclntab_magic=int(entry["pclntab_magic"], 16),
    )


def _traceback_rules(entry: Mapping[str, Any]) -> TracebackRules:
    lists = {name: tuple(value) for name, value in entry.items() if isinstance(value, list)}
    return TracebackRules(**{**entry, **lists})
