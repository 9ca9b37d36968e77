"""A profile as JSON, for programs and for our own pages.

An object with these fields (most strings are an index into "strings"):

    format         "ebpfprof-profile-1"
    kind           the name of its kind, such as "block", or "" for a profile of another tool
    moment         true if the values are those of a moment ("open"); left out if they are sums over
                   the recorded time
    title          a few words
    time_s         its begin, in seconds of Unix time; duration_s: its duration, in seconds
    sample_types   [{"type", "unit"} ...]; default: index of the one to show first;
                   count: index of the number of events, 0 if it is not there
    counted        what tables call that number, left out if they don't show it
    words          what the kind calls things: {"rows": "operations" or "functions", "value": the
                   heading of the value, "place": that of what called an operation, "headline" and
                   "events": words of a sentence about the largest place, "nothing": why there may
                   be no sample}; left out for a profile of another tool
    period         the amount of period_type {"type", "unit"} per sample
    strings        [text ...]
    frames         [[function, file, line, mapping, 1 if inlined into its caller] ...]: function,
                   file and mapping are strings; line is 0 if unknown
    stacks         [[frame, root first ...] ...]; the lists below have an element for each stack
    values         [[one integer for each sample type] ...]
    errors         [standard error of the value that tables show ...], 0 for an exact one; left out
                   if all are exact
    lengths        [[[least, count] ...] ...]: how many of the waits of each stack were how long, by
                   buckets of which each begins at `least` ns, and has an eighth of a power of two
                   (profile.wait_histogram); left out if no length is known
    quantiles      [{"p50": [ns, least, most], "p99": ..., "max": ...} ...]: of each stack those
                   that are known, and within which limits, the upper one null without any; left
                   out with `lengths`
    slices         {"times": [[start, end] ...], "cells": [[slice, least, events, value ...] ...]}:
                   the slices of the recorded time, oldest first, in Unix time in seconds, and of
                   each stack its cells, four numbers each: index of the slice in which events
                   ended, the least length of their bucket in ns (-1 if the length is not known),
                   their number and their value. The cells of a stack add up to its values. Left
                   out if samples were not kept apart by time
    max_error      rows with a larger error, as a part of their value, have no rank and no share;
                   left out if all are exact
    operations     [string ...]: the operation ("chan receive"), "" in profiles of functions
    callers        [frame or -1 ...]: the frame that called the operation, as tables name it; left
                   out in profiles of functions
    own            [frame or -1 ...]: the innermost frame of the program's main package or module;
                   left out if no stack has one
    few_releases   a sentence in place of a table of releases, where too few of them were recorded;
                   else left out
    labels         [[[key, value] ...] ...]: strings, or {"n": number, "u": unit} as the value
    handlers       [{"name": of the handler, or in parentheses of the rest, "count": null if nobody
                   knows it, "value", "error": as in "errors", "parts": {what the value consists
                   of: value ...}, "peers": {peer of the network: in how many samples its goroutines
                   waited for it ...}, "quantiles": as above} ...], the largest first, the
                   rest last: the table of handlers; left out if no sample has one
    requests       [count, standard error]: how many requests of HTTP/1 ended, at least
                   (profile.served_requests); left out if none did
    groups         [string ...]: what each stack waits for or does, in the words of "parts"; left
                   out if no sample has a handler, or the kind has no such groups
    idle           [index into idle_rules or -1 ...]: the rule that makes the wait idle
    idle_rules     [{"name", "reason"} ...]
    comments       [text ...]
    incomplete     {"lost": events that were lost, at most, "share": part of all events, "alarming":
                   whether that may change what the profile says}; left out if nothing was lost,
                   or that is not known, as of a file. The comments say what was lost
"""

import json
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from ebpfprof.console.text import well_formed
from ebpfprof.export.frames import FrameTable
from ebpfprof.export.kinds import (
    count_heading,
    count_index,
    default_index,
    has_operations,
    is_moment,
    kind_words,
    title,
)
from ebpfprof.export.tables.handlers import grouping, handler_sums
from ebpfprof.profile.completeness import Completeness
from ebpfprof.profile.evidence import MAX_ERROR, few_releases
from ebpfprof.profile.handlers import handler_label
from ebpfprof.profile.idle import IdleRule, rule_of
from ebpfprof.profile.model import Frame, Label, Profile, Sample, ValueType
from ebpfprof.profile.operations import frame_of_program, operation_of
from ebpfprof.profile.served_requests import served_requests
from ebpfprof.profile.wait_histogram import QUANTILES, SCALE, WaitHistogram
from ebpfprof.profile.wakers import waiter_of

FORMAT = "ebpfprof-profile-1"


def encode(profile: Profile, *, default: int | None = None) -> bytes:
    """The profile as JSON, in ASCII; `default` is the index of the sample type to show first.

    None: that of its kind.
    """
    return dumped(document(profile, default=default))


def encode_difference(profile: Profile, base: Profile, *, index: int | None = None) -> bytes:
    """Both profiles: {"format": "ebpfprof-difference-1", "profile": {...}, "base": {...}}."""
    both = (document(side, default=index) for side in (profile, base))
    return dumped(
        {"format": "ebpfprof-difference-1", **dict(zip(("profile", "base"), both, strict=True))}
    )


def document(profile: Profile, *, default: int | None = None) -> dict[str, Any]:
    """The profile as the object that the docstring of this module describes."""
    return _Document(profile).fields(default_index(profile) if default is None else default)


def dumped(document: object) -> bytes:
    """JSON in ASCII without spaces."""
    return json.dumps(document, separators=(",", ":")).encode("ascii")


class _Document:
    """The tables of one profile while it is written."""

    def __init__(self, profile: Profile) -> None:
        self._profile = profile
        self._strings: dict[str, int] = {"": 0}
        self._frames = FrameTable()
        self._rules: dict[tuple[str, str], tuple[int, IdleRule]] = {}

    def fields(self, default: int) -> dict[str, Any]:
        profile = self._profile
        samples = profile.samples
        # The order matters: each line adds to the tables of strings and rules.
        stacks = [self._frames.stack(sample) for sample in samples]
        frames = [
            [
                self._string(frame.function),
                self._string(frame.file),
                frame.line,
                self._string(frame.mapping),
                int(frame.is_inlined),
            ]
            for frame in self._frames.frames
        ]
        operations = self._operations()
        callers = self._callers(stacks) if has_operations(profile) else []
        own = self._own(stacks)
        labels = [[self._label(label) for label in sample.labels] for sample in samples]
        marks = [self._idle(sample) for sample in samples]
        groups = self._groups()
        return {
            "format": FORMAT,
            "kind": profile.kind,
            **({"moment": True} if is_moment(profile) else {}),
            "title": title(profile),
            "time_s": profile.time_ns / 1e9,
            "duration_s": profile.duration_ns / 1e9,
            "sample_types": [_value_type(value_type) for value_type in profile.sample_types],
            "default": range(len(profile.sample_types))[default],
            **({"count": count} if (count := count_index(profile)) else {}),
            **({"counted": counted} if (counted := count_heading(profile)) else {}),
            **({"words": words} if (words := kind_words(profile)) else {}),
            "period": profile.period,
            "period_type": _value_type(profile.period_type),
            "strings": list(self._strings),
            "frames": frames,
            "stacks": stacks,
            "values": [sample.values for sample in samples],
            **_evidence(profile),
            **_lengths(profile),
            **_slices(profile),
            **_handlers(profile, default),
            **_requests(profile),
            **groups,
            "operations": operations,
            **({"few_releases": few} if (few := few_releases(profile)) else {}),
            **({"callers": callers} if callers else {}),
            **({"own": own} if max(own, default=-1) >= 0 else {}),
            "labels": labels,
            "idle": marks,
            "idle_rules": [
                {"name": rule.name, "reason": rule.reason} for _, rule in self._rules.values()
            ],
            "comments": [well_formed(comment) for comment in profile.comments],
            **_incomplete(profile),
        }

    def _string(self, text: str) -> int:
        return self._strings.setdefault(well_formed(text), len(self._strings))

    def _label(self, label: Label) -> list[Any]:
        if isinstance(label.value, str):
            return [self._string(label.key), self._string(label.value)]
        return [self._string(label.key), {"n": label.value, "u": well_formed(label.unit)}]

    def _operations(self) -> list[int]:
        samples = self._profile.samples
        if not has_operations(self._profile):
            return [0] * len(samples)
        return [self._string(operation_of(sample)[0]) for sample in samples]

    def _groups(self) -> dict[str, Any]:
        group_of = grouping(self._profile)
        samples = self._profile.samples
        if group_of is None or not any(map(handler_label, samples)):
            return {}
        return {"groups": [self._string(group_of(sample)) for sample in samples]}

    def _callers(self, stacks: Sequence[Sequence[int]]) -> list[int]:
        callers = (operation_of(sample)[1] for sample in self._profile.samples)
        return self._numbers(callers, stacks)

    def _own(self, stacks: Sequence[Sequence[int]]) -> list[int]:
        module = self._profile.module
        frames = (frame_of_program(waiter_of(s).frames, module) for s in self._profile.samples)
        return self._numbers(frames, stacks)

    def _numbers(
        self, wanted: Iterable[Frame | None], stacks: Sequence[Sequence[int]]
    ) -> list[int]:
        """The number of a frame of each stack, the innermost that is equal; -1 without one."""
        keys = [(frame.function, frame.file, frame.line) for frame in self._frames.frames]
        return [
            -1
            if frame is None
            else next(
                (n for n in reversed(stack) if keys[n] == (frame.function, frame.file, frame.line)),
                -1,
            )
            for frame, stack in zip(wanted, stacks, strict=True)
        ]

    def _idle(self, sample: Sample) -> int:
        rule = rule_of(self._profile.kind, sample)
        if rule is None:
            return -1
        key = rule.name, rule.reason  # idle by behaviour: each has a reason of its own
        return self._rules.setdefault(key, (len(self._rules), rule))[0]


def _incomplete(profile: Profile) -> dict[str, Any]:
    completeness = profile.account.completeness if profile.account else Completeness()
    if not completeness.lost:
        return {}
    fields = {
        "lost": completeness.lost,
        "share": completeness.lost_share,
        "alarming": completeness.is_alarming,
    }
    return {"incomplete": fields}


def _evidence(profile: Profile) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    if any(sample.variance for sample in profile.samples):
        fields["errors"] = [round(math.sqrt(sample.variance), 1) for sample in profile.samples]
        fields["max_error"] = MAX_ERROR
    return fields


def _lengths(profile: Profile) -> dict[str, Any]:
    if not any(sample.lengths for sample in profile.samples):
        return {}
    return {
        "lengths": [
            [[SCALE.lower_ns(bucket), round(count, 3)] for bucket, count in sample.lengths.rows()]
            for sample in profile.samples
        ],
        "quantiles": [
            _quantiles(sample.lengths, sample.values[0], sample.count_variance)
            for sample in profile.samples
        ],
    }


def _slices(profile: Profile) -> dict[str, Any]:
    slices = profile.slices
    if slices is None or not any(sample.lengths for sample in profile.samples):
        return {}
    cells = [
        [
            number
            for index, bucket, count, value in slices.cells(sample)
            for number in (index, -1 if bucket is None else SCALE.lower_ns(bucket), count, value)
        ]
        for sample in profile.samples
    ]
    return {"slices": {"times": slices.times, "cells": cells}}


def _handlers(profile: Profile, index: int) -> dict[str, Any]:
    rows = handler_sums(profile, index)
    if not any(row.is_handler for row in rows):
        return {}
    return {
        "handlers": [
            {
                "name": well_formed(row.name),
                "count": row.count if row.has_count else None,
                "value": row.value,
                **({"error": round(math.sqrt(row.variance), 1)} if row.variance else {}),
                **({"parts": dict(row.parts.most_common())} if row.parts else {}),
                **({"peers": _peers(row.peers)} if row.peers else {}),
                **(
                    {"quantiles": _quantiles(row.lengths, row.count, row.count_variance)}
                    if row.lengths
                    else {}
                ),
            }
            for row in rows
        ]
    }


def _peers(peers: Counter[str]) -> dict[str, int]:
    return {well_formed(peer): samples for peer, samples in peers.most_common()}


def _requests(profile: Profile) -> dict[str, Any]:
    served = served_requests(profile)
    error = round(math.sqrt(served.variance), 1)
    return {"requests": [served.count, error]} if served.count > 0 else {}


def _quantiles(
    lengths: WaitHistogram, waits: float, variance: float
) -> dict[str, list[float | None]]:
    fields: dict[str, list[float | None]] = {}
    for name, part in QUANTILES.items():
        known = lengths.quantile(part, waits=waits, variance=variance)
        if known:
            most_ns = known.most_ns if math.isfinite(known.most_ns) else None
            fields[name] = [known.ns, known.least_ns, most_ns]
    return fields


def _value_type(value_type: ValueType) -> dict[str, str]:
    return {"type": well_formed(value_type.type), "unit": well_formed(value_type.unit)}
