"""Who may be recorded, when what is known of pods changes."""

from __future__ import annotations

import os
from dataclasses import replace
from time import monotonic
from types import SimpleNamespace
from typing import cast

import pytest

from ebpfprof.agent.costs import FIRST, OPENING_S, Costs
from ebpfprof.agent.identity.kubernetes import PodNames
from ebpfprof.agent.identity.pod_source import KnownPods
from ebpfprof.agent.identity.pods import Pods
from ebpfprof.agent.identity.service import OPTED_OUT, Identifier
from ebpfprof.agent.log import Log
from ebpfprof.agent.roster import FAILED, UNSUPPORTED, Roster
from ebpfprof.agent.settings import Settings
from ebpfprof.agent.settings_file import parsed
from ebpfprof.discovery.processes import ProcessTable, Survey
from tests.agent.processes import described
from tests.agent.test_pods import MadeUpSource

OFF = {"ebpfprof/profile": "off"}
DROP = '[[rules]]\naction = "drop"\nsource = "service"\nregex = ".*"'


def test_an_annotation_counts_from_the_end_of_a_round_on(monkeypatch: pytest.MonkeyPatch) -> None:
    us = described(os.getpid(), container="c" * 64, go_version="go1.27.3")
    made = MadeUpSource({"c" * 64: PodNames(pod="till")})
    settings = replace(Settings(), min_age=0.0)
    with ProcessTable() as table:
        monkeypatch.setattr(table, "survey", lambda **_: Survey((us,), 0))
        identifier = Identifier(settings, Pods("/nowhere", [made.opened()]))
        roster = Roster(table, identifier, settings, Log(pytest.fail))
        roster.survey()
        (key,) = roster.members
        seen = [roster.why_not(roster.members[key])]
        for annotations, recorded in ((OFF, [key]), ({}, []), (OFF, []), (OFF, [key])):
            made.known = KnownPods({"c" * 64: PodNames(pod="till", annotations=annotations)})
            made.now_s += 1000
            roster.judge(recorded)
            seen.append(roster.why_not(roster.members[key]))
    # It was not recorded at the third time, and did not opt out: nobody looked.
    assert seen == ["", OPTED_OUT, "", "", OPTED_OUT]


def roster_of(surveys: list[Survey], asked: list[dict[str, float]], said: list[str]) -> Roster:
    """A roster whose table gives these surveys, the last one again and again."""

    def survey(**how: float) -> Survey:
        asked.append(how)
        return surveys.pop(0) if len(surveys) > 1 else surveys[0]

    settings = replace(Settings(), min_age=7.0, allow_unknown_go=False)
    table = cast("ProcessTable", SimpleNamespace(survey=survey))
    return Roster(table, Identifier(settings, Pods("/nowhere", [])), settings, Log(said.append))


def test_processes_come_and_go_with_the_surveys() -> None:
    us = described(os.getpid())
    gone = replace(us, pid=us.pid + 1)
    asked: list[dict[str, float]] = []
    messages: list[str] = []
    surveys = [
        Survey((us, gone), 0, unanswered=(9,), too_young=3),
        Survey((us,), 0, unanswered=(9,), too_young=4),
        Survey((replace(us, name="renamed"),), 0, unanswered=(8, 9)),
    ]
    roster = roster_of(surveys, asked, messages)
    roster.survey()
    assert len(roster.members) == 2
    assert roster.too_young == 3
    roster.survey()
    (member,) = roster.members.values()
    assert roster.too_young == 4
    assert asked == [{"least_age_s": 7.0, "fresh_s": 60.0}] * 2
    roster.survey()
    assert roster.members == {member.key: member}
    assert member.about.name == "renamed"
    # Each one is reported once.
    assert [line.partition(" (")[0] for line in messages] == [
        "ebpfprof: process 9",
        "ebpfprof: process 8",
    ]


def test_how_busy_a_process_is_follows_what_it_uses() -> None:
    roster = roster_of([Survey((described(os.getpid()),), 0)], [], [])
    roster.survey()
    (member,) = roster.members.values()
    for expected in (0.25, 0.375):
        assert member.used_ns
        member.used_ns -= 50 * 10**9  # half of the last 100 s
        member.measured_s -= 100
        roster.survey()
        assert member.busy == pytest.approx(expected, rel=0.1)
    (found,) = roster.candidates(Costs(), ())
    assert found.busy == member.busy
    assert 0 < found.age_s < 3600
    assert found.cost == pytest.approx(FIRST + OPENING_S / 60)
    (found,) = roster.candidates(Costs(), [member.key])
    assert found.cost == pytest.approx(FIRST)


def test_the_pauses_between_attempts_have_a_bound() -> None:
    roster = roster_of([Survey((described(os.getpid()),), 0)], [], [])
    roster.survey()
    (member,) = roster.members.values()
    for _ in range(40):
        member.fail()
        assert roster.candidates(Costs(), ()) == []
    assert 3500 < member.failed_until_s - monotonic() <= 3600


@pytest.mark.parametrize(
    ("changes", "allows", "reason"),
    [
        ({}, False, ""),
        ({"supported": False}, True, UNSUPPORTED),
        ({"supported": False, "is_unknown_version": True}, False, UNSUPPORTED),
        ({"supported": False, "is_unknown_version": True}, True, ""),
    ],
)
def test_unknown_versions_of_go_are_tried_if_that_is_allowed(
    changes: dict[str, object], allows: bool, reason: str
) -> None:
    roster = roster_of([Survey((described(os.getpid(), **changes),), 0)], [], [])
    roster.settings = replace(roster.settings, allow_unknown_go=allows)
    roster.survey()
    (member,) = roster.members.values()
    assert roster.why_not(member) == reason


def test_what_ended_stays_who_it_was() -> None:
    roster = roster_of([Survey((described(os.getpid(), started_ns=1),), 0)], [], [])
    roster.survey()
    (member,) = roster.members.values()
    before = member.verdict
    dropped = replace(roster.settings, rules=parsed(DROP, "a").rules)
    roster.use(Identifier(dropped, Pods("/nowhere", [])), dropped)
    assert member.verdict is before


def test_what_failed_as_another_program_is_tried_at_once() -> None:
    us = described(os.getpid())
    roster = roster_of([Survey((us,), 0), Survey((replace(us, executable="/x"),), 0)], [], [])
    roster.survey()
    (member,) = roster.members.values()
    member.fail()
    assert roster.why_not(member) == FAILED
    roster.survey()
    assert roster.why_not(member) == ""
    assert member.about.executable == "/x"
