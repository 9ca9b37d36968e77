"""Who waits for whom, in the end, too; cycles."""

from __future__ import annotations

import gc
from random import Random
from weakref import ref

import pytest

from ebpfprof.commands.trace_tables import Asked, TraceTables
from ebpfprof.export.tables import waits
from ebpfprof.export.timelines import page
from ebpfprof.profile.waiting_for import OpenFile
from ebpfprof.timeline import waitgraph
from ebpfprof.timeline.critical import Chains
from ebpfprof.timeline.cycles import Cycle, cycles
from ebpfprof.timeline.links import TracedGroup
from ebpfprof.timeline.model import Timeline, WaitObject
from ebpfprof.timeline.parts import Did
from ebpfprof.timeline.spans import WAITING, spans
from ebpfprof.timeline.waitgraph import OutsideCause, WaitEdge, WaitGraph, graph_of, wait_graph
from tests.made_up_timeline import Story
from tests.simulated_scheduler import SimulatedScheduler, steps_of, timeline_of_steps
from tests.unit.timeline.test_critical import timeline as of_a_chain

A, B, C = 1, 2, 3
RECEIVE, SEND = "chan receive", "chan send"


def graph(of: Timeline) -> WaitGraph:
    return wait_graph(Chains(of))


def edge(of: WaitGraph, waiter: str, waited_for: str | Did) -> WaitEdge:
    (found,) = (
        each
        for each in of.edges
        if each.waiter.name == waiter and waited_for in (_name(each), each.waited_for[0])
    )
    return found


def _name(of: WaitEdge) -> str:
    return of.waited_for.name


def causes(of: WaitEdge) -> dict[tuple[str, Did], int]:
    return {(cause.who.name, cause.did): ns for cause, ns in of.causes.items()}


def names(of: Cycle) -> list[str]:
    return [group.name for group in of.groups]


def test_time_is_handed_on_along_a_chain() -> None:
    found = graph(of_a_chain(1300))
    asks = edge(found, "main.asks", "main.holds")
    assert (asks.ns, asks.count) == (900, 1)
    assert causes(asks) == {
        ("main.holds", Did.RUN): 50 + 170,
        ("main.holds", Did.QUEUE): 30,
        ("main.reads", Did.FOR_NETWORK): 550,
        ("main.reads", Did.QUEUE): 10,
        ("main.reads", Did.RUN): 90,
    }
    holds = edge(found, "main.holds", "main.reads")
    assert (holds.ns, causes(holds)) == (
        650,
        {
            ("main.reads", Did.FOR_NETWORK): 550,
            ("main.reads", Did.QUEUE): 10,
            ("main.reads", Did.RUN): 90,
        },
    )
    assert edge(found, "main.reads", Did.FOR_NETWORK).ns == 580
    still = edge(found, "main.asks", Did.GOES_ON)
    assert (still.ns, still.count) == (100, 1)
    assert cycles(found) == []


def test_an_edge_is_between_the_first_two_of_a_longer_chain() -> None:
    story = Story({goid: f"main.w{goid}" for goid in (1, 2, 3, 4)})
    for goid in (1, 2, 3):
        story.park(10, goid, RECEIVE, "main.work")
    for at_ns, goid in ((100, 3), (200, 2), (300, 1)):
        story.wake(at_ns, goid, goid + 1)
    found = edge(graph(story.timeline(300)), "main.w1", "main.w2")
    assert found.ns == 290
    assert causes(found) == {
        ("main.w4", Did.RUN): 90,
        ("main.w3", Did.RUN): 100,
        ("main.w2", Did.RUN): 100,
    }


@pytest.mark.parametrize("seed", range(5))
def test_edges_and_causes_add_up_to_all_waiting(seed: int) -> None:
    world = SimulatedScheduler(Random(seed))
    steps, _ = steps_of(world.run(4000), world.known)
    simulated = timeline_of_steps(steps, world.now_ns)
    found = graph(simulated)
    waited = [span for span in spans(simulated) if span.state == WAITING]
    assert sum(each.ns for each in found.edges) == sum(each.length_ns for each in waited)
    assert all(each.causes.total() == each.reasons.total() == each.ns for each in found.edges)
    counted = sum(not each.is_cut or each.begin_ns == simulated.begin_ns for each in waited)
    cut = sum(each.end_ns == simulated.end_ns for each in waited)
    assert counted - cut <= sum(each.count for each in found.edges) <= len(waited)
    assert len({type(each.waited_for) for each in found.edges}) == 2


def ping_pong(rounds: int, *, sleeps: bool = False, word: str = RECEIVE) -> Timeline:
    """The server is woken 10 before it runs; it runs 300 for each request, the client 100.

    The client sleeps 1000 after each if it `sleeps`.
    """
    story = Story({A: "main.client", B: "main.server"})
    story.park(0, B, word, "main.server")
    at_ns = 0
    for _ in range(rounds):
        at_ns += 100
        story.wake(at_ns, B, A, run_ns=at_ns + 10)
        story.park(at_ns, A, RECEIVE, "main.client")
        at_ns += 310
        story.wake(at_ns, A, B)
        story.park(at_ns, B, word, "main.server")
        if sleeps:
            story.park(at_ns, A, "sleep", "time.Sleep", "main.client")
            at_ns += 1000
            story.timer(at_ns, A)
    return story.timeline(at_ns)


def test_two_that_wait_for_each_other_are_a_cycle_and_it_says_who_ran() -> None:
    found = graph(ping_pong(100))
    (cycle,) = cycles(found)
    assert names(cycle) == ["main.client", "main.server"]
    ran = {(cause.who.name, cause.did): ns for cause, ns in cycle.causes.items()}
    assert ran == {
        ("main.server", Did.RUN): 100 * 300,
        ("main.client", Did.RUN): 100 * 100,
        ("main.server", Did.QUEUE): 100 * 10,
    }
    (sentence, *_) = waits.waits_findings(found)
    assert sentence == (
        "A cycle: main.client and main.server wait for each other, and for nothing else (41.0 us): "
        "73 % for main.server, which ran, 24 % for main.client, which ran and 2.4 % for one that "
        "was in the run queue."
    )


def test_three_in_a_circle_are_a_cycle() -> None:
    story = Story({A: "main.a", B: "main.b", C: "main.c"})
    story.park(0, B, RECEIVE, "main.b")
    story.park(0, C, RECEIVE, "main.c")
    for number in range(60):
        now, after = (A, B, C)[number % 3], (B, C, A)[number % 3]
        story.wake(100 * number + 100, after, now)
        story.park(100 * number + 100, now, RECEIVE, "main.it")
    (cycle,) = cycles(graph(story.timeline(6000)))
    assert names(cycle) == ["main.a", "main.b", "main.c"]


def test_goroutines_of_one_group_that_wait_for_each_other_are_a_cycle() -> None:
    story = Story(dict.fromkeys((A, B), "main.work"))
    story.park(0, B, "sync.Mutex.Lock", "sync.(*Mutex).Lock", "main.work")
    for number in range(20):
        now, after = ((A, B), (B, A))[number % 2]
        story.wake(100 * number + 100, after, now)
        story.park(100 * number + 100, now, "sync.Mutex.Lock", "sync.(*Mutex).Lock", "main.work")
    found = graph(story.timeline(2000))
    (cycle,) = cycles(found)
    assert names(cycle) == ["main.work"]
    assert "Goroutines of main.work wait for each other" in waits.waits_findings(found)[0]


def test_a_pipeline_is_not_a_cycle() -> None:
    """Each waits for the one before; the first one for the network."""
    story = Story({A: "main.reads", B: "main.parses", C: "main.writes"})
    story.park(0, A, "IO wait", "main.reads")
    story.park(0, B, RECEIVE, "main.parses")
    story.park(0, C, RECEIVE, "main.writes")
    for number in range(20):
        at_ns = 1000 * number
        story.network(at_ns + 800, A)
        story.wake(at_ns + 850, B, A)
        story.park(at_ns + 850, A, "IO wait", "main.reads")
        story.wake(at_ns + 900, C, B)
        story.park(at_ns + 900, B, RECEIVE, "main.parses")
        story.park(at_ns + 950, C, RECEIVE, "main.writes")
    found = graph(story.timeline(20_000))
    assert cycles(found) == []
    writes = edge(found, "main.writes", "main.parses")
    assert max(causes(writes), key=lambda cause: causes(writes)[cause]) == (
        "main.reads",
        Did.FOR_NETWORK,
    )
    assert (
        "was in the end for main.reads, which waited for the network"
        in (waits.waits_findings(found)[0])
    )


def test_a_circle_out_of_which_waiting_leads_is_not_a_cycle() -> None:
    """The server waits for the client, and the client sleeps: nothing is slow in between."""
    assert cycles(graph(ping_pong(100, sleeps=True))) == []


def test_those_who_hold_a_lock_and_wait_for_the_network_are_not_cycle() -> None:
    story = Story(dict.fromkeys((A, B), "main.work"))
    story.park(0, B, "sync.Mutex.Lock", "sync.(*Mutex).Lock", "main.work")
    for number in range(20):
        now, after = ((A, B), (B, A))[number % 2]
        at_ns = 1000 * number
        story.park(at_ns + 10, now, "IO wait", "main.read")
        story.network(at_ns + 990, now)
        story.wake(at_ns + 1000, after, now)
        story.park(at_ns + 1000, now, "sync.Mutex.Lock", "sync.(*Mutex).Lock", "main.work")
    found = graph(story.timeline(20_000))
    assert cycles(found) == []
    assert "which waited for the network" in waits.waits_findings(found)[0]


def test_idle_waits_are_left_out_and_a_line_says_how_much() -> None:
    """A worker that waits for work is half of a cycle, but no row of the table."""
    story = Story({A: "main.client", B: "main.(*Pool).worker"})
    story.park(0, B, RECEIVE, "runtime.chanrecv2", "main.(*Pool).worker")
    for number in range(50):
        at_ns = 1000 * number
        story.wake(at_ns + 100, B, A)
        story.park(at_ns + 100, A, RECEIVE, "runtime.chanrecv1", "main.client")
        story.wake(at_ns + 1000, A, B)
        story.park(at_ns + 1000, B, RECEIVE, "runtime.chanrecv2", "main.(*Pool).worker")
    timeline = story.timeline(50_000)
    found = graph(timeline)
    assert [(each.waiter.name, _name(each)) for each in found.shown] == [
        ("main.client", "main.(*Pool).worker")
    ]
    assert found.hidden.total() == 50 * 100
    assert [names(cycle) for cycle in cycles(found)] == [["main.(*Pool).worker", "main.client"]]
    text = waits.render(found, width=80, color=False)
    line = "Hidden as idle: 5.00 us (worker waiting for work 5.00 us)"
    assert line in text
    assert page.document(timeline)["waits"]["hidden"] == line


def test_a_circle_of_idle_waits_only_is_not_a_cycle() -> None:
    story = Story({A: "main.(*Pool).worker", B: "main.(*Other).worker"})
    stacks = {A: "main.(*Pool).worker", B: "main.(*Other).worker"}
    story.park(0, B, RECEIVE, "runtime.chanrecv2", stacks[B])
    for number in range(20):
        now, after = ((A, B), (B, A))[number % 2]
        story.wake(100 * number + 100, after, now)
        story.park(100 * number + 100, now, RECEIVE, "runtime.chanrecv2", stacks[now])
    found = graph(story.timeline(2000))
    assert found.shown == []
    assert cycles(found) == []


def test_a_port_with_several_clients_serves_also_where_nobody_listens_now() -> None:
    story = Story({A: "main.serve", B: "main.serve"})
    for goid in (A, B):
        file = OpenFile(goid, "tcp", "10.0.0.1:8080", f"10.0.0.9:{goid}")
        story.park(10, goid, "IO wait", "main.wait", on=WaitObject("a socket", file))
    (found,) = graph(story.timeline(200)).edges
    assert found.waited_for == OutsideCause(Did.FOR_NETWORK, "clients of :8080")


def test_connections_are_named_by_their_peers_and_clients_by_the_port() -> None:
    story = Story({A: "main.serve", B: "main.ask", C: "main.accept"})
    client = OpenFile(7, "tcp", "10.0.0.1:8080", "10.0.0.9:4711")
    backend = OpenFile(8, "tcp", "10.0.0.1:3999", "10.0.0.2:5432")
    listener = OpenFile(3, "tcp", "0.0.0.0:8080", is_listener=True)
    for goid, file in ((A, client), (B, backend), (C, listener)):
        story.park(10, goid, "IO wait", "main.wait", on=WaitObject("a socket", file))
    for goid in (A, B, C):
        story.network(100, goid)
    found = graph(story.timeline(200))
    assert {each.waiter.name: each.waited_for for each in found.edges} == {
        "main.serve": OutsideCause(Did.FOR_NETWORK, "clients of :8080"),
        "main.ask": OutsideCause(Did.FOR_NETWORK, "10.0.0.2:5432"),
        "main.accept": OutsideCause(Did.FOR_NETWORK, "clients of :8080"),
    }


def test_the_table_fits_80_columns_and_says_who_waited_for_whom() -> None:
    found = graph(of_a_chain())
    text = waits.render(found, width=80, color=False)
    assert max(map(len, text.splitlines())) <= 80
    lines = [line.strip() for line in text.splitlines()]
    first = next(at for at, line in enumerate(lines) if "main.asks (" in line)
    assert lines[first].startswith("900 ns")
    assert lines[first].endswith("main.asks (sync.Mutex.Lock main.cache.mu)")
    assert lines[first + 1] == "for main.holds"
    assert lines[first + 2].startswith("550 ns")
    assert lines[first + 2].endswith("in the end main.reads: network 10.0.0.1:80")
    assert waits.longest_sentence(found, 0) == (
        "The longest wait: 900 ns from 0.000 s on, of G1 main.asks for G2 main.holds."
    )


def test_a_wait_that_a_pause_cuts_is_as_long_as_what_was_recorded_of_it() -> None:
    """It is one wait, and no pause counts: 10 ms, where 200 us were recorded."""
    us, ms = 1000, 1_000_000
    story = Story({A: "main.waits", B: "main.wakes"})
    story.park(100 * us, A, RECEIVE, "main.waits")
    story.pause(200 * us, 10 * ms)
    story.wake(10 * ms + 50 * us, A, B)
    found = graph(story.timeline(10 * ms + 200 * us))
    (waited,) = found.edges
    assert (waited.count, waited.ns) == (1, 150 * us)
    assert waited.longest
    assert (waited.longest.length_ns, waited.longest.is_cut) == (100 * us, True)
    assert found.length_ns == 400 * us
    assert waits.longest_sentence(found, 0) == (
        "The longest wait: at least 100 us from 0.000 s on, of G1 main.waits for G2 main.wakes; "
        "a pause of the recording cuts it."
    )
    assert " >100 us " in waits.render(found, width=80, color=False)


def test_a_wait_between_two_pauses_is_not_cut() -> None:
    story = Story({A: "main.waits", B: "main.wakes"})
    story.pause(200, 10_000)
    story.run(10_010, A)
    story.run(10_020, B)
    story.park(10_100, A, RECEIVE, "main.waits")
    story.wake(10_200, A, B)
    story.pause(10_300, 50_000)
    (waited,) = graph(story.timeline(50_100)).edges
    assert waited.longest
    assert (waited.longest.length_ns, waited.longest.is_cut) == (100, False)


def test_waits_that_do_not_end_are_reported_and_where_more_is_known() -> None:
    """But of a sleep and of the network it is known what ends them."""
    story = Story({A: "main.hangs", B: "main.sleeps", C: "main.reads"})
    story.park(10, A, "sync.Mutex.Lock", "sync.(*Mutex).Lock", "main.hangs")
    story.park(900, B, "sleep", "time.Sleep", "main.sleeps")
    story.park(900, C, "IO wait", "main.reads")
    found = graph(story.timeline(1000))
    assert {(each.waiter.name, each.waited_for[0]) for each in found.edges} == {
        ("main.hangs", Did.GOES_ON),
        ("main.sleeps", Did.FOR_TIMER),
        ("main.reads", Did.FOR_NETWORK),
    }
    assert waits.waits_findings(found) == [
        "83 % of the waiting had not ended when the trace did; ebpfprof dump shows which goroutine "
        "may hold what is waited for."
    ]


def of_a_lock() -> Timeline:
    """Two wait for a lock; the one that has it reads."""
    story = Story({A: "main.reads", B: "main.asks"})
    mutex = WaitObject("main.cache.mu")
    story.park(0, B, "sync.Mutex.Lock", "sync.(*Mutex).Lock", "main.asks", on=mutex)
    story.park(10, A, "IO wait", "main.reads")
    story.network(990, A)
    story.wake(1000, B, A)
    return story.timeline(1000)


def test_the_lock_and_its_holder_are_named() -> None:
    (sentence, *_) = waits.waits_findings(graph(of_a_lock()))
    assert sentence.endswith(
        "main.asks waits most for that: for main.cache.mu (sync.Mutex.Lock), held by main.reads."
    )


def test_a_wait_for_no_lock_names_none() -> None:
    (sentence, *_) = waits.waits_findings(graph(of_a_chain(1300)))
    assert "held by" not in sentence


def test_nothing_is_reported_of_little_waiting() -> None:
    story = Story({A: "main.asks", B: "main.holds"})
    story.park(10, A, RECEIVE, "main.asks")
    story.wake(20, A, B)
    found = graph(story.timeline(100_000))
    assert waits.waits_findings(found) == []
    assert found.members[TracedGroup("main.asks")] == 1


def test_a_file_and_a_table_work_it_out_once(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[WaitGraph] = []

    def noted(chains: Chains) -> WaitGraph:
        made.append(wait_graph(chains))
        return made[-1]

    monkeypatch.setattr(waitgraph, "wait_graph", noted)
    of = of_a_chain()
    assert page.encode(of)
    tables = TraceTables(of, width=None, color=False)
    assert "Who waits for whom" in dict(tables.parts(Asked(most_waits=1)))
    assert len(made) == 1
    assert graph_of(of_a_chain()) is not graph_of(of)
    gone = ref(of)
    del of, tables
    gc.collect()
    assert gone() is None  # a graph keeps no timeline
