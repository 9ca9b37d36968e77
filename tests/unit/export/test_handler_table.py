"""The table of handlers: sums, errors, what the time consists of."""

from __future__ import annotations

from dataclasses import replace

from ebpfprof.export import json_profile
from ebpfprof.export.tables import handlers, report
from ebpfprof.export.tables.handlers import OUTSIDE, handler_sums
from ebpfprof.profile.evidence import UNKNOWN_RELEASE
from ebpfprof.profile.handlers import HANDLER
from ebpfprof.profile.model import Frame, Label, Location, PeerSamples, Profile, Sample
from ebpfprof.profile.operations import STATE
from ebpfprof.profile.wait_histogram import WaitHistogram
from ebpfprof.profilers.registry import kind_named

MS = 1_000_000
LOCK = "sync.(*Mutex).Lock"
RECEIVE = "runtime.chanrecv1"
CHECKOUT = "main.(*Shop).checkout"


def sample(
    handler: str, *functions: str, ms: int, count: int = 1, state: str = "", variance: float = 0.0
) -> Sample:
    locations = tuple(
        Location(n + 1, None, (Frame(name, "/src/shop.go", n + 1),))
        for n, name in enumerate(functions)
    )
    labels = [Label(HANDLER, handler)] if handler else []
    labels += [Label(STATE, state)] if state else []
    return Sample(locations, (count, ms * MS), tuple(labels), variance)


def profile(*samples: Sample, kind: str = "block") -> Profile:
    return kind_named(kind).make_profile(samples, [], time_ns=1, duration_ns=2)


def table(shown: Profile, *, hide_idle: bool = False, limit: int = 20) -> list[str]:
    text = handlers.render(shown, hide_idle=hide_idle, limit=limit, width=None, color=False)
    return [" ".join(line.split()) for line in text.splitlines()]


def test_the_sums_of_each_handler_the_largest_first() -> None:
    shown = profile(
        sample("main.list", RECEIVE, "main.list", ms=100, count=4),
        sample(CHECKOUT, LOCK, "main.pay", ms=450, count=2),
        sample(CHECKOUT, RECEIVE, "main.wait", ms=150, count=3),
        sample("", RECEIVE, "main.work", ms=300, count=1),
    )
    assert table(shown) == [
        "Delay Share Count Handler",
        "600 ms 60.0% 5 main.(*Shop).checkout",
        "locks 75 %, channels 25 %",
        "100 ms 10.0% 4 main.list",
        "channels 100 %",
        f"300 ms 30.0% 1 {OUTSIDE}",
        "channels 100 %",
    ]
    assert table(shown, limit=1)[-1] == "... and 2 more handlers"


def test_what_the_time_of_goroutines_consists_of() -> None:
    park = ("runtime.gopark", "runtime.netpollblock", "internal/poll.runtime_pollWait")
    mark = "runtime.gcAssistAlloc1"
    shown = profile(
        sample(CHECKOUT, *park, "main.read", ms=30, state="IO wait"),
        sample(CHECKOUT, "main.parse", ms=20, state="runnable"),
        sample(CHECKOUT, "[running: no stack]", ms=15, state="running"),
        sample(CHECKOUT, "syscall.Syscall", "syscall.read", ms=14, state="syscall"),
        sample(CHECKOUT, "runtime.gopark", mark, "main.parse", ms=12, state="GC assist wait"),
        sample(CHECKOUT, "time.Sleep", "main.retry", ms=9, state="sleep"),
        kind="wall",
    )
    (row,) = handler_sums(shown)
    assert row.parts == {
        "network": 30 * MS,
        "run queue": 20 * MS,
        "running": 15 * MS,
        "system calls": 14 * MS,
        "garbage collection": 12 * MS,
        "sleep": 9 * MS,
    }
    # The five largest.
    assert row.consists_of == (
        "network 30 %, run queue 20 %, running 15 %, system calls 14 %, garbage collection 12 %"
    )


def test_what_cpu_time_consists_of() -> None:
    alloc = "runtime.mallocgc"
    shown = profile(
        sample(CHECKOUT, "main.hash", ms=5),
        sample(CHECKOUT, alloc, "main.parse", ms=3),
        sample(CHECKOUT, "runtime.gcDrainN", "runtime.gcAssistAlloc", alloc, "main.parse", ms=2),
        kind="cpu",
    )
    (row,) = handler_sums(shown)
    assert row.consists_of == "running 50 %, allocation 30 %, garbage collection 20 %"


def test_allocations_consist_of_nothing_else() -> None:
    heap = kind_named("heap")
    one = sample(CHECKOUT, "main.parse", ms=1)
    values = tuple(7 for _ in heap.sample_types)
    shown = heap.make_profile(
        [Sample(one.locations, values, one.labels)], [], time_ns=1, duration_ns=1
    )
    (row,) = handler_sums(shown)
    assert row.consists_of == ""
    assert CHECKOUT in "\n".join(table(shown))


def test_estimates_have_errors() -> None:
    shown = profile(sample(CHECKOUT, LOCK, "main.pay", ms=100, variance=(10 * MS) ** 2))
    assert table(shown)[:2] == [
        "Delay Error Share Count Handler",
        f"100 ms +-10% 100.0% 1 {CHECKOUT}",
    ]


def test_quantiles_of_a_handler_are_those_of_the_waits_of_all_its_stacks() -> None:
    """Nine waits of ten are in one stack, the long ones in another."""
    short = replace(
        sample(CHECKOUT, LOCK, "main.pay", ms=180, count=180), lengths=WaitHistogram.of([MS] * 180)
    )
    long = replace(
        sample(CHECKOUT, RECEIVE, "main.wait", ms=16_000, count=20),
        lengths=WaitHistogram.of([800 * MS] * 20),
    )
    shown = profile(short, long, sample("main.list", RECEIVE, "main.list", ms=30, count=3))
    assert table(shown)[:4] == [
        "Delay Share Count p50 p99 Max Handler",
        "16.2 s 99.8% 200 1.0 ms 770 ms 770 ms main.(*Shop).checkout",
        "channels 99 %, locks 1.1 %",
        "30.0 ms 0.2% 3 - - - main.list",
    ]
    narrow = handlers.render(shown, width=60, color=False).splitlines()[0].split()
    assert narrow == ["Delay", "Share", "Count", "p99", "Handler"]
    found = json_profile.document(shown)["handlers"]
    assert [row["name"] for row in found] == [CHECKOUT, "main.list"]
    assert found[0]["count"] == 200
    assert found[0]["parts"] == {"channels": 16_000 * MS, "locks": 180 * MS}
    ns, least_ns, most_ns = found[0]["quantiles"]["p99"]
    assert least_ns <= 800 * MS <= most_ns <= 1.12 * ns
    assert "quantiles" not in found[1]


def test_profiles_without_handlers_have_none_in_json() -> None:
    assert "handlers" not in json_profile.document(profile(sample("", LOCK, "main.f", ms=1)))


def releases(unknown_ms: int, *others: Sample) -> Profile:
    """A mutex profile; of this time of waiting, nobody knows which release ended it."""
    unknown = Sample((UNKNOWN_RELEASE,), (0, unknown_ms * MS))
    return profile(*others, unknown, kind="mutex")


def test_releases_that_were_not_recorded_are_not_outside_of_handlers() -> None:
    shown = releases(4, sample(CHECKOUT, "sync.(*Mutex).Unlock", "main.pay", ms=96, count=8))
    assert table(shown)[1::2] == [
        "96.0 ms 96.0% 8 main.(*Shop).checkout",
        "4.00 ms 4.0% - (releases not recorded)",
    ]
    known, unknown = json_profile.document(shown)["handlers"]
    assert (known["count"], unknown["count"]) == (8, None)


def test_few_recorded_releases_say_nothing_of_handlers() -> None:
    shown = releases(50, sample(CHECKOUT, "sync.(*Mutex).Unlock", "main.pay", ms=50, count=8))
    (line,) = table(shown)
    assert line.startswith("100 ms of waiting for locks. Few releases of locks were recorded")


SERVER = ("net/http.(*response).finishRequest", "net/http.(*conn).serve")
END_OF_REQUEST = ("sync.(*Cond).Wait", "net/http.(*connReader).abortPendingRead", *SERVER)


def test_requests_are_counted_by_the_wait_that_ends_each() -> None:
    lock = ("sync.(*Mutex).Lock", "net/http.(*connReader).lock", *END_OF_REQUEST[1:])
    shown = profile(
        sample(CHECKOUT, LOCK, "main.pay", ms=50, count=900),
        sample("", *END_OF_REQUEST, ms=3, count=741),
        sample("", *lock, ms=1, count=5),
    )
    assert table(replace(shown, duration_ns=3 * 10**9))[-1] == (
        "HTTP/1 requests of all handlers: at least 247 a second."
    )
    assert json_profile.document(shown)["requests"] == [741, 0.0]


def test_samples_of_goroutines_count_no_requests() -> None:
    wall = profile(sample("", *END_OF_REQUEST, ms=3, count=741), kind="wall")
    assert "requests" not in json_profile.document(wall)


def test_requests_of_an_estimate_have_as_many_digits_as_are_known() -> None:
    ends = replace(sample("", *END_OF_REQUEST, ms=3, count=741), count_variance=100.0**2)
    shown = replace(profile(ends, sample(CHECKOUT, LOCK, "main.pay", ms=50)), duration_ns=3 * 10**9)
    assert table(shown)[-1].endswith("at least 250 a second.")
    unknown = replace(ends, count_variance=600.0**2)
    assert "requests" not in table(replace(shown, samples=(unknown, shown.samples[1])))[-1]


def test_idle_waits_are_left_out() -> None:
    shown = profile(
        sample("", RECEIVE, "main.worker", ms=900), sample(CHECKOUT, LOCK, "main.pay", ms=100)
    )
    assert table(shown, hide_idle=True)[1] == f"100 ms 100.0% 1 {CHECKOUT}"
    assert len(table(shown, hide_idle=True)) == 3


def test_a_program_without_handlers() -> None:
    assert table(profile(sample("", LOCK, "main.f", ms=1))) == ["No handler is on any stack."]


def test_a_report_by_handler_has_the_title_and_comments_of_the_profile() -> None:
    shown = profile(sample(CHECKOUT, LOCK, "main.pay", ms=100))
    text = report.encode(shown, by_handler=True).decode()
    assert "Block profile" in text or "Waits" in text or "block" in text
    assert f"{CHECKOUT}\n" in text
    assert "Operation" not in text


def test_names_of_handlers_can_not_control_the_terminal() -> None:
    text = handlers.render(profile(sample("main.\x1b[31mevil", LOCK, ms=1)), width=80, color=False)
    assert "\x1b" not in text


def test_the_network_is_by_peer_of_the_operations_that_the_profile_has() -> None:
    answer = ("runtime.selectgo", "net/http.(*persistConn).roundTrip", "main.pay")
    shown = profile(
        sample(CHECKOUT, *answer, ms=60, count=2),
        sample(CHECKOUT, LOCK, "main.pay", ms=20),
        sample("main.list", LOCK, "main.list", ms=10),
    )
    seen = [
        PeerSamples(CHECKOUT, "HTTP answer", "10.0.0.7:80", 8),
        PeerSamples(CHECKOUT, "HTTP answer", "10.0.0.8:80", 4),
        PeerSamples(CHECKOUT, "IO wait", "10.0.0.9:5432", 40),
        PeerSamples("main.list", "HTTP answer", "10.0.0.7:80", 1),
    ]
    shown = replace(shown, peers=tuple(seen))
    words = "network 75 % (10.0.0.7:80 in 8 of 12 samples, 10.0.0.8:80 in 4), locks 25 %"
    assert table(shown)[2] == words
    assert table(shown)[4] == "locks 100 %"
    first, second = json_profile.document(shown)["handlers"]
    assert first["peers"] == {"10.0.0.7:80": 8, "10.0.0.8:80": 4}
    assert "peers" not in second


def test_json_has_the_group_of_each_stack_if_there_are_handlers() -> None:
    with_handler = sample(CHECKOUT, LOCK, "main.pay", ms=60)
    without = sample("", RECEIVE, "main.work", ms=30)
    document = json_profile.document(profile(with_handler, without))
    assert [document["strings"][one] for one in document["groups"]] == ["locks", "channels"]
    assert "groups" not in json_profile.document(profile(without))
