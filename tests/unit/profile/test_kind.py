"""Kinds of profiles: what one has that declares no more than it must."""

from __future__ import annotations

from ebpfprof.profile.kind import Loader, ProfileKind, Table
from ebpfprof.profile.model import ValueType

PLAIN = ProfileKind(
    name="plain",
    title="plain",
    subject="Things",
    summary="where things are",
    heading="Things of {process} in {length}",
    events="things",
    nothing="there was nothing",
    headline="of all things:",
    sample_types=(ValueType("things", "count"),),
    table=Table("functions", "Things", "Things", ("Function",)),
    loader=Loader("tests.nowhere"),
)


def test_a_kind_is_of_go_programs_and_recorded_by_bpf_in_full() -> None:
    loader = PLAIN.loader
    assert (loader.needs_go, loader.needs_bpf) == (True, True)
    assert not any((loader.needs_probes, loader.is_windowed, loader.needs_all_samples))


def test_a_kind_is_a_sum_of_every_event_that_is_recorded_by_default() -> None:
    assert not any((PLAIN.is_moment, PLAIN.is_total, PLAIN.has_lengths))
    assert not any((PLAIN.is_of_tracked_waits, PLAIN.is_agent_default))
    assert PLAIN.is_default
    assert PLAIN.sampling({}) == "every event"


def test_a_profile_of_a_kind_has_its_types() -> None:
    profile = PLAIN.make_profile([], (), time_ns=5, duration_ns=7)
    assert (profile.kind, profile.sample_types) == (PLAIN.name, PLAIN.sample_types)
    assert (profile.time_ns, profile.duration_ns, profile.period) == (5, 7, 1)
