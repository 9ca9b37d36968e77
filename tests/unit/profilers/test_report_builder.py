"""What the profiles of one recording know of each other."""

from __future__ import annotations

from dataclasses import replace
from unittest import mock

from ebpfprof.profile.kind import ProfileKind
from ebpfprof.profile.losses import Loss
from ebpfprof.profile.model import Frame, Location, Sample
from ebpfprof.profilers.account import RecordingAccount, loss_lines
from ebpfprof.profilers.options import Options
from ebpfprof.profilers.report_builder import RecordingFacts, Report, ReportBuilder, WholeSums
from ebpfprof.profilers.waits.kinds import BLOCK, MUTEX

S = 1_000_000_000
LOST = Loss("waits_full", "waits that did not fit", 2)


def report(*waits: tuple[ProfileKind, int]) -> Report:
    """The report of kinds with so many events each, where two were lost."""
    target = mock.MagicMock()
    target.pid, target.name, target.allowance.exceeded = 7, "shop", ""
    recorded = RecordingFacts(
        target=target,
        go=None,
        kinds=tuple(kind.name for kind, _ in waits),
        started_ns=0,
        started_unix_ns=S,
        ended_ns=2 * S,
        losses=(LOST,),
    )
    builder = ReportBuilder(recorded, Options(kinds=recorded.kinds))
    stack = (Location(1, None, (Frame("main.main", "main.go", 3),)),)
    for kind, count in waits:
        account = builder.account(kind, f"{kind.title} profile")
        samples = [Sample(stack, (count, 1000 * count))] if count else []
        builder.add(
            kind.make_profile(samples, (), time_ns=S, duration_ns=account.length_ns), account
        )
    return builder.finished()


def test_losses_are_in_proportion_to_all_that_was_recorded_together() -> None:
    """An event that was lost may be of any kind: an empty profile does not lack all."""
    profiles = report((BLOCK, 19_998), (MUTEX, 0)).profiles
    for profile in profiles:
        assert profile.account is not None
        assert profile.account.completeness.lost_share == 2 / 20_000
        assert any("less than 0.1 %" in c or "0.01 %" in c for c in profile.comments)
        assert not any("100 %" in comment for comment in profile.comments)
    assert loss_lines([LOST], [p.account.completeness for p in profiles if p.account]) == []


def test_where_nothing_else_was_recorded_all_may_be_lost() -> None:
    (profile,) = report((MUTEX, 0)).profiles
    assert profile.account is not None
    assert profile.account.completeness.lost_share == 1
    assert any("at most 100 %" in comment for comment in profile.comments)


def facts(ended_s: int, *, started: bool = True) -> RecordingFacts:
    """Of a recording that has gone on for so long."""
    target = mock.MagicMock()
    target.pid, target.name, target.allowance.exceeded = 7, "shop", ""
    return RecordingFacts(
        target=target,
        go=None,
        kinds=("block",),
        started_ns=0,
        started_unix_ns=S if started else 0,
        ended_ns=ended_s * S,
        until_unix_ns=(1 + ended_s) * S,
        losses=(replace(LOST, count=ended_s),),
    )


def interval(
    later: tuple[RecordingFacts, WholeSums[int]],
    earlier: tuple[RecordingFacts, WholeSums[int] | None] | None = None,
) -> Report:
    """The report of so many waits, which were recorded since the earlier moment."""
    before, since = earlier or (None, None)
    builder = ReportBuilder(later[0], Options(kinds=("block",)), before)
    builder.add_since(of_waits, later[1], since)
    return builder.finished()


def of_waits(count: int, builder: ReportBuilder) -> None:
    account = builder.account(BLOCK, "block profile")
    stack = (Location(1, None, (Frame("main.main", "main.go", 3),)),)
    samples = [Sample(stack, (count, 1000 * count))]
    began_ns = builder.recording.started_unix_ns
    profile = BLOCK.make_profile(samples, (), time_ns=began_ns, duration_ns=account.length_ns)
    builder.add(profile, account)


def test_an_interval_is_the_difference_of_two_sums() -> None:
    earlier, later = (facts(2), WholeSums(10)), (facts(5), WholeSums(16))
    (profile,) = interval(later, earlier).profiles
    assert [sample.values for sample in profile.samples] == [(6, 6000)]
    assert (profile.time_ns, profile.duration_ns) == (3 * S, 3 * S)
    assert isinstance(profile.account, RecordingAccount)
    assert profile.account.length_ns == 3 * S
    assert [loss.count for loss in profile.account.losses] == [3]


def test_sums_are_named_once_and_are_still_there_afterwards() -> None:
    now = facts(5), WholeSums(16)
    first, again = interval(now).profiles, interval(now).profiles
    assert now[1].read is None  # its profiles take less memory
    assert first == again
    (rest,) = interval((facts(6), WholeSums(17)), now).profiles
    assert [sample.values for sample in rest.samples] == [(1, 1000)]


def test_since_the_start_is_all_there_is() -> None:
    """Nothing had been read then."""
    (profile,) = interval((facts(5), WholeSums(16)), (facts(0, started=False), None)).profiles
    assert [sample.values for sample in profile.samples] == [(16, 16_000)]
    assert (profile.time_ns, profile.duration_ns) == (S, 5 * S)


def test_facts_of_an_interval_begin_with_the_earlier_moment() -> None:
    since = facts(5).since(facts(2))
    assert (since.started_ns, since.ended_ns, since.started_unix_ns) == (2 * S, 5 * S, 3 * S)
    assert [loss.count for loss in since.losses] == [3]
    whole = facts(5)
    assert whole.since(None) is whole
