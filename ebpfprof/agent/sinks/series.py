"""A window as a backend sees it: labels of series, and profiles that can be summed up."""

from __future__ import annotations

import re
import uuid
from dataclasses import replace
from typing import Final

from ebpfprof.profile.model import Profile
from ebpfprof.profile.service import ServiceWindow
from ebpfprof.profile.validate import check
from ebpfprof.profilers.registry import find_kind

_NOT_IN_NAMES: Final = re.compile(r"[^a-zA-Z0-9_]")
_IDS: Final = uuid.UUID("c9a9b6ce-0c0c-4a3c-8ac5-0d1c5fd4fb0d")
"""The namespace of the ids of profiles (RFC 9562, version 5)."""


def series_name(kind: str) -> str:
    """The name of a kind in the user interfaces of backends."""
    known = find_kind(kind)
    return known.series if known and known.series else kind


def series_labels(window: ServiceWindow) -> dict[str, str]:
    """The labels of a window's series, with Prometheus names. No label has a pid."""
    identity = window.identity
    labels = {
        "service_name": identity.service,
        "namespace": identity.namespace,
        "version": identity.version,
        "node": identity.node,
        "pod": identity.pod,
        "container": identity.container,
    }
    for name, value in identity.labels.items():
        labels.setdefault(_label_name(name), value)
    return {name: value for name, value in labels.items() if value}


def part_id(window: ServiceWindow, kind: str, part: int) -> str:
    """The id of a part of a window's profile (a UUID): the same each time it is sent."""
    key = (window.identity.node, window.pid, window.process_start_ns, window.start_s, kind, part)
    return str(uuid.uuid5(_IDS, repr(key)))


def sent_profile(window: ServiceWindow, name: str) -> Profile | None:
    """The profile of this kind as a backend gets it; None if it gets none. Raises InvalidProfile.

    It gets no profile without samples: backends can't show "it did not wait". It gets no totals
    since the program's start, because backends add up profiles. A profile of a moment has its time,
    and no duration.
    """
    kind, profile = find_kind(name), window.profiles[name]
    if kind is None or kind.is_total or not profile.samples:
        return None
    check(profile)
    shown = kind.in_tables(profile)
    if kind.is_moment:
        shown = replace(shown, time_ns=round(window.end_s * 1e9), duration_ns=0)
    return shown


def _label_name(name: str) -> str:
    plain = _NOT_IN_NAMES.sub("_", name)
    return f"_{plain}" if plain[:1].isdigit() else plain
