"""What the profiles of one recording know of each other."""

from __future__ import annotations

from unittest import mock

from ebpfprof.kernel.losses import Loss
from ebpfprof.profile.kind import ProfileKind
from ebpfprof.profile.model import Frame, Location, Sample
from ebpfprof.profilers.account import loss_lines
from ebpfprof.profilers.options import Options
from ebpfprof.profilers.report_builder import RecordingFacts, Report, ReportBuilder
from ebpfprof.profilers.waits.kinds import BLOCK, MUTEX

S = 1_000_000_000
LOST = Loss("waits_full", "waits that did not fit", 2)


def report(*waits: tuple[ProfileKind, int]) -> Report:
    """The report of kinds with so many events each, where two were lost."""
    target = mock.MagicMock()
    target.pid, target.name, target.allowance.exceeded = 7, "shop", ""
    facts = RecordingFacts(
        target=target,
        go=None,
        kinds=tuple(kind.name for kind, _ in waits),
        started_ns=0,
        started_unix_ns=S,
        ended_ns=2 * S,
        losses=(LOST,),
    )
    builder = ReportBuilder(facts, Options(kinds=facts.kinds))
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
