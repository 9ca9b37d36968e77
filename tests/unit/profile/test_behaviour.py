"""Waits that are idle by behaviour: their rule, their comments, and what keeps them."""

import json
from dataclasses import replace
from typing import Final

import pytest

from ebpfprof.export import formats, pprof
from ebpfprof.profile.behaviour import IdleBehaviour, together
from ebpfprof.profile.delta import difference, normalized
from ebpfprof.profile.idle import rule_of, split
from ebpfprof.profile.idle_comments import idle_comments, with_behaviours
from ebpfprof.profile.model import Kind, Label, Sample
from ebpfprof.profile.operations import STATE
from tests.unit.profile.idle_examples import COND, CONN, JOIN, LOCK, RECEIVE, SELECT, SEND, Stack
from tests.unit.profile.test_idle import profile_of, sample_of

ONE: Final = IdleBehaviour(1, 0.998, "timer")
BEAT: Final = (RECEIVE, "main.beat", "main.start")
SLEEP: Final = ("runtime.gopark", "time.Sleep", "main.nap")


def idle_sample(functions: Stack = BEAT, behaviour: IdleBehaviour | None = ONE) -> Sample:
    return replace(sample_of(functions), behaviour=behaviour)


@pytest.mark.parametrize(
    ("behaviour", "text"),
    [
        (ONE, "one goroutine that waited 99.8 % of the time for a timer"),
        (
            replace(ONE, share=0.9999),
            "one goroutine that waited nearly all of the time for a timer",
        ),
        (
            IdleBehaviour(3, 0.95, "signal"),
            "3 goroutines that waited 95.0 % of the time for signals",
        ),
    ],
)
def test_it_says_why(behaviour: IdleBehaviour, text: str) -> None:
    assert str(behaviour) == text
    rule = rule_of("block", idle_sample(behaviour=behaviour))
    assert rule is not None
    assert rule.reason == f"main.beat: {text}."


@pytest.mark.parametrize("kind", ["block", "open", "wall"])
def test_such_waits_are_idle(kind: Kind) -> None:
    for functions in (BEAT, (SELECT, "main.lead"), SLEEP):
        rule = rule_of(kind, idle_sample(functions))
        assert rule is not None
        assert rule.name == "loop of a timer"
        assert rule_of(kind, idle_sample(functions, None)) is None


@pytest.mark.parametrize(
    "functions",
    [
        *((LOCK, "main.f"), (SEND, "main.f"), (JOIN, "main.f"), (COND, "main.f")),
        ("sync.(*RWMutex).RLock", "main.f"),
        (RECEIVE, "main.(*Api).ServeHTTP", CONN),
        (SELECT, *(f"main.f{n}" for n in range(20)), "main.(*Api).ServeHTTP", CONN),
    ],
)
def test_locks_sends_and_requests_never_are(functions: Stack) -> None:
    for kind in ("block", "open", "wall", "mutex"):
        assert rule_of(kind, idle_sample(functions)) is None


def test_a_name_says_more_than_behaviour() -> None:
    rule = rule_of("block", idle_sample((RECEIVE, "main.worker")))
    assert rule is not None
    assert rule.name == "worker waiting for work"
    assert idle_comments("block", [idle_sample((RECEIVE, "main.worker"))]) == ()


def test_sets_are_idle_together_if_each_is() -> None:
    both = together([replace(ONE, share=1.0), IdleBehaviour(3, 0.96, "timer")])
    assert str(both) == "4 goroutines that waited 97.0 % of the time for timers"
    assert together([ONE, None]) is None
    assert together([ONE, replace(ONE, cause="signal")]) is None
    assert together([]) is None


def test_differences_keep_it() -> None:
    earlier = profile_of(replace(idle_sample(behaviour=None), values=(1, 4)))
    later = profile_of(replace(idle_sample(), values=(3, 9)))
    (found,) = difference(later, earlier).samples
    assert (found.values, found.behaviour) == ((2, 5), ONE)
    assert normalized(later, earlier).samples[0].behaviour == ONE
    kept, hidden = split(difference(later, earlier))
    assert kept.samples == ()
    assert [(each.rule.name, each.count) for each in hidden] == [("loop of a timer", 2)]


def test_files_keep_it_in_their_comments() -> None:
    shown = sample_of((RECEIVE, "main.beat", "main.other"))
    profile = profile_of(idle_sample(), shown)
    comments = idle_comments("block", profile.samples)
    assert len(comments) == 1
    assert comments[0].startswith(f"idle: main.beat (x.go:2): {ONE} (stack ")
    again = pprof.decode(pprof.encode(replace(profile, comments=comments)), kind="block")
    assert [sample.behaviour for sample in again.samples] == [ONE, None]
    assert b"main.other" in formats.encode(again, "folded", hide_idle=True)
    assert b"main.start" not in formats.encode(again, "folded", hide_idle=True)


def test_a_stack_of_which_some_waits_are_not_idle_has_no_comment() -> None:
    other = replace(idle_sample(behaviour=None), labels=(Label("tenant", "7"),))
    assert idle_comments("block", [idle_sample(), other]) == ()
    woken = replace(idle_sample(behaviour=None), labels=(Label(STATE, "runnable"),))
    assert len(idle_comments("wall", [idle_sample(), woken])) == 1


def test_other_comments_mark_nothing() -> None:
    comment = idle_comments("block", [idle_sample()])[0]
    for text in ("", "idle: ", comment[:-1], comment.replace("timer", "lock"), comment + "x"):
        profile = replace(profile_of(sample_of(BEAT)), comments=(text,))
        assert with_behaviours(profile).samples[0].behaviour is None, text
    huge = comment.replace("one goroutine", f"{'9' * 5000} goroutines")
    assert with_behaviours(replace(profile, comments=(huge,))).samples[0].behaviour is None


def test_each_has_its_own_reason_on_the_page() -> None:
    other = idle_sample((SELECT, "main.lead"), IdleBehaviour(2, 0.97, "timer"))
    document = json.loads(formats.encode(profile_of(idle_sample(), other), "json"))
    assert document["idle"] == [0, 1]
    assert [each["reason"] for each in document["idle_rules"]] == [
        "main.beat: one goroutine that waited 99.8 % of the time for a timer.",
        "main.lead: 2 goroutines that waited 97.0 % of the time for timers.",
    ]
