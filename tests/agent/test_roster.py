"""Who may be recorded, when what is known of pods changes."""

from __future__ import annotations

import os
from dataclasses import replace

import pytest

from ebpfprof.agent.identity.kubernetes import PodNames
from ebpfprof.agent.identity.pod_source import KnownPods
from ebpfprof.agent.identity.pods import Pods
from ebpfprof.agent.identity.service import OPTED_OUT, Identifier
from ebpfprof.agent.log import Log
from ebpfprof.agent.roster import Roster
from ebpfprof.agent.settings import Settings
from ebpfprof.discovery.processes import ProcessTable, Survey
from tests.agent.processes import described
from tests.agent.test_pods import MadeUpSource

OFF = {"ebpfprof/profile": "off"}


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
