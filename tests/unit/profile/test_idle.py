"""Idle waits: each rule on waits that it matches, and on similar waits that it must not match."""

import re
import tomllib
from dataclasses import replace
from importlib.resources import files
from typing import Final

import pytest

from ebpfprof.profile.function_names import plain
from ebpfprof.profile.idle import Hidden, IdleRules, rule_of, rules, split
from ebpfprof.profile.model import Frame, Kind, Label, Location, Profile, Sample
from ebpfprof.profile.operations import STATE
from ebpfprof.profilers.cpu.kind import CPU
from ebpfprof.profilers.registry import kind_named
from tests.toolchains import toolchain
from tests.unit.profile.idle_examples import (
    COND,
    CONN,
    GRPC,
    IO,
    JOIN,
    K8S,
    LOCK,
    MAIN,
    RECEIVE,
    RECEIVE_OK,
    SELECT,
    SEND,
    Stack,
)
from tests.unit.profile.idle_examples import (
    EXAMPLES as NAMED,
)
from tests.unit.profile.idle_shapes import SHAPES


def sample_of(functions: Stack, count: int = 1, ns: int = 10) -> Sample:
    """A sample with a location a function; "" is an address without a name."""
    return Sample(
        tuple(
            Location(0x1000 + n, None, (Frame(name, "/src/x.go", n + 1),) if name else ())
            for n, name in enumerate(functions)
        ),
        (count, ns),
    )


def profile_of(*samples: Sample, kind: Kind = "block") -> Profile:
    return kind_named(kind).make_profile(
        samples, [], time_ns=1, duration_ns=2, comments=["a comment"]
    )


EXAMPLES: Final = NAMED | SHAPES
IDLE: Final = [(name, stack) for name, (idle_ones, _) in EXAMPLES.items() for stack in idle_ones]
PROBLEMS: Final = [stack for _, problems in EXAMPLES.values() for stack in problems]


def name_of(stack: Stack, kind: Kind = "block", known: IdleRules | None = None) -> str | None:
    rule = rule_of(kind, sample_of(stack), known)
    return rule.name if rule else None


# What stands above the operation's leaf in a stack from the park on.
WAYS: Final = {
    IO: ("runtime.gopark", "runtime.netpollblock"),
    RECEIVE: ("runtime.gopark", "runtime.chanrecv"),
    RECEIVE_OK: ("runtime.gopark", "runtime.chanrecv"),
    SELECT: ("runtime.gopark",),
    COND: ("runtime.gopark", "runtime.goparkunlock", "sync.runtime_notifyListWait"),
    JOIN: (
        *("runtime.gopark", "runtime.goparkunlock", "runtime.semacquire1"),
        "sync.runtime_SemacquireWaitGroup",
    ),
}


@pytest.mark.parametrize(("name", "stack"), IDLE)
def test_idle_waits_are_idle_from_the_park_on(name: str, stack: Stack) -> None:
    way = WAYS.get(stack[0], ())
    whole = sample_of((*way, *stack))
    waits = replace(whole, labels=(Label(STATE, "select"),))
    runs = replace(whole, labels=(Label(STATE, "runnable"),))
    (rule,) = [each for each in rules() if each.name == name]
    expected = rule if "wall" in rule.kinds else None
    assert rule_of("wall", waits) == expected
    assert rule_of("wall", runs) is None


def test_every_rule_has_examples_of_idle_waits_and_of_problems() -> None:
    assert set(EXAMPLES) == {rule.name for rule in rules()}
    assert all(idle_ones and problems for idle_ones, problems in EXAMPLES.values())


@pytest.mark.parametrize(("name", "stack"), IDLE)
def test_idle_waits_are_recognised(name: str, stack: Stack) -> None:
    assert name_of(stack) == name
    assert name_of(stack, "open") == name


@pytest.mark.parametrize("stack", PROBLEMS)
def test_waits_that_may_be_a_problem_are_shown(stack: Stack) -> None:
    assert name_of(stack) is None


@pytest.mark.parametrize("kind", ["mutex", "cpu"])
def test_other_profiles_have_no_idle_waits(kind: Kind) -> None:
    assert [stack for _, stack in IDLE if name_of(stack, kind)] == []


def test_a_rule_is_for_the_kinds_it_names() -> None:
    text = files("ebpfprof").joinpath("data/idle.toml").read_text()
    data = tomllib.loads(text.replace("[[rule]]\n", '[[rule]]\nkinds = ["open"]\n'))
    known = IdleRules(data)
    assert name_of((RECEIVE, "main.worker"), "open", known) == "worker waiting for work"
    assert name_of((RECEIVE, "main.worker"), "block", known) is None


def test_sends_and_locks_are_never_idle() -> None:
    for operation in (SEND, "reflect.chansend0", LOCK, "sync.(*RWMutex).RLock"):
        assert [s for _, s in IDLE if name_of((operation, *s[1:]))] == []


def test_nothing_below_a_request_handler_is_idle() -> None:
    for handler in (
        "main.(*Api).ServeHTTP",
        "net/http.HandlerFunc.ServeHTTP",
        f"{GRPC}.(*Server).processUnaryRPC",
        "net/rpc.(*service).call",
    ):
        assert [s for _, s in IDLE if name_of((*s, handler))] == []
        assert [s for _, s in IDLE if name_of((*s, handler, CONN, "main.x.gowrap1"))] == []


def test_the_last_frame_of_a_cut_stack_is_not_a_goroutine_function() -> None:
    # Go 1.19 to 1.22 keep 32 frames: the last one may be in the midst of the stack.
    leaf, worker, runner = (
        Frame(name, "/x.go", 1) for name in (RECEIVE, "main.worker", "sync.(*WaitGroup).Go.func1")
    )
    for runners, is_idle in ((29, True), (30, False)):
        inlined = Location(1, None, (leaf, worker, *runners * (runner,)))
        assert (rule_of("block", Sample((inlined,), (1, 1))) is not None) is is_idle
    # However deep a call stands, what it is for doesn't change.
    queue = (COND, f"{K8S}/util/workqueue.(*Type).Get", *(f"main.f{n}" for n in range(40)))
    assert name_of(queue) == "Kubernetes client"


def test_inlined_frames_count_as_frames() -> None:
    frames = tuple(Frame(name, "/x.go", 1) for name in (RECEIVE, "main.worker", "main.main.func1"))
    sample = Sample((Location(1, None, frames),), (1, 1))
    assert rule_of("block", sample) is not None
    between = (frames[0], Frame("main.(*Client).Call", "/x.go", 1), *frames[1:])
    assert rule_of("block", replace(sample, locations=(Location(1, None, between),))) is None


def test_a_sample_without_a_stack_is_not_idle() -> None:
    assert rule_of("block", Sample((), (1, 1))) is None


def test_hidden_and_kept_waits_add_up_to_all() -> None:
    samples = [sample_of(s, n + 1, 1000 + n) for n, (_, s) in enumerate(IDLE)]
    samples += [sample_of(s, 7, 3) for s in PROBLEMS]
    profile = profile_of(*samples)
    kept, hidden = split(profile)
    assert [s.values for s in kept.samples] == [(7, 3)] * len(PROBLEMS)
    assert kept == replace(profile, samples=kept.samples)
    assert {each.rule.name for each in hidden} == set(EXAMPLES)
    for index in (0, 1):
        total = sum(sample.values[index] for sample in profile.samples)
        rest = sum(sample.values[index] for sample in kept.samples)
        assert total == rest + sum((each.count, each.delay_ns)[index] for each in hidden)
    assert [e.delay_ns for e in hidden] == sorted((e.delay_ns for e in hidden), reverse=True)


def test_hidden_waits_are_added_up_by_rule() -> None:
    worker, main = (RECEIVE, "main.worker"), (JOIN, *MAIN)
    samples = [sample_of(worker, 2, 30), sample_of(main, 1, 50), sample_of(worker, 3, 40)]
    _, hidden = split(profile_of(*samples, kind="open"))
    by_name = {rule.name: rule for rule in rules()}
    assert hidden == [
        Hidden(by_name["worker waiting for work"], 5, 70),
        Hidden(by_name["main goroutine"], 1, 50),
    ]


def test_a_profile_without_idle_waits_is_not_changed() -> None:
    busy = profile_of(sample_of((LOCK, "main.worker")))
    assert split(busy) == (busy, [])
    on_cpu = CPU.make_profile(
        [sample_of((RECEIVE, "main.worker"))], [], period=1, time_ns=0, duration_ns=0
    )
    assert split(on_cpu) == (on_cpu, [])


def test_reasons_are_sentences() -> None:
    for rule in rules():
        assert re.fullmatch(r"[A-Z].{20,200}\.", rule.reason), rule.name
        assert set(rule.kinds) <= {"block", "wakers", "open", "wall"}
        assert rule.operations
        assert bool(rule.calls or rule.goroutines or rule.within) != bool(rule.shape), rule.name


def names_in_go() -> set[str]:
    """The functions of Go's standard library that rules name, without marks of closures."""
    calls = {name for rule in rules() for call in rule.calls + rule.within for name in call}
    goroutines = {name for rule in rules() for name in rule.goroutines}
    return {
        name.removesuffix(".func")
        for name in calls | goroutines
        if "." not in name.partition("(")[0].rpartition("/")[0]
    }


def declared(minor: str) -> set[str]:
    """The functions that the packages so named declare in one version of Go."""
    sources = toolchain(minor).goroot / "src"
    pattern = re.compile(r"^func (?:\(\w* ?(?P<star>\*?)(?P<type>\w+)\) )?(?P<name>\w+)[\[(]", re.M)
    found = set()
    for package in {name.partition(".")[0] for name in names_in_go()}:
        for path in (sources / package).glob("*.go"):
            for match in pattern.finditer(path.read_text()):
                receiver = f"({match['star']}{match['type']})." if match["type"] else ""
                found.add(f"{package}.{receiver}{match['name']}")
    return found


@pytest.mark.machine
def test_go_functions_named_by_rules_exist() -> None:
    assert len(names_in_go()) > 15
    found = declared("1.19") | declared("1.22") | declared("1.27")
    assert names_in_go() - found == set()


def test_hostile_names_match_no_rule() -> None:
    deep = "[" * 500_000
    slashes, closures = "a/" * 500_000, ".func1\n" * 100_000
    for name in (deep, deep + "]" * 500_000, slashes, closures, "main." + "a[" * 5_000, "]["):
        assert name_of((RECEIVE, name)) is None
    for name in (".func1", "main.", "(", "a/b/c", "\x00", "[", "]"):
        assert name_of((RECEIVE, name)) is None
        assert name_of((RECEIVE, name, *MAIN)) is None
    assert name_of((RECEIVE, "main.worker" + deep + "]" * 500_000)) == "worker waiting for work"
    # However long its type arguments are, a handler is one.
    handler = f"main.(*Api[{'x' * 5_000}]).ServeHTTP"
    assert name_of((COND, f"{K8S}/util/workqueue.(*Type).Get", handler)) is None


def test_each_name_is_parsed_once() -> None:
    plain.cache_clear()
    profile = profile_of(*(sample_of((SELECT, "main.f", "main.g")) for _ in range(100)))
    split(profile)
    assert plain.cache_info().misses == 3
