"""Waits by handler, against a server with 20 routes that logs its own waiting for each."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Final

import pytest

from ebpfprof.export import pprof
from ebpfprof.goruntime.open_processes import OpenProcesses
from ebpfprof.goruntime.waits.dump import GoroutineDumper
from ebpfprof.profile.goroutines import HttpRequest
from ebpfprof.profile.handlers import handler_label, with_handlers
from ebpfprof.profile.model import Profile
from ebpfprof.profile.wait_histogram import QUANTILES
from tests.builds import BUILDS, NEWEST, VERSIONS, builds, in_full, versions
from tests.differential.mutexes import agree_once
from tests.kernel.programs import program
from tests.kernel.verbs import verb
from tests.recorder import only_profile, recording
from tests.targets_run import SLOWNESS, Target

ROUTES: Final = 20
REQUESTS: Final = 25
DUMPS: Final = 20
ELIDES_WRAPPERS: Final = VERSIONS[: VERSIONS.index("1.23")]
"""Their profiles lack the wrapper of `go f(x)`, so that nobody knows who started the goroutine."""
WITHOUT_PATTERN: Final = ELIDES_WRAPPERS
"""Their requests don't have the pattern that routed them."""
FIRST_WRAPPED: Final = 18
"""The first route that starts a goroutine so."""
_ERROR: Final = re.compile(
    r"\+-(?P<percent>[\d.]+)% .* (?P<name>main\.route\d\d)(?:: GET /\d\d)?$", re.MULTILINE
)
FETCH: Final = "main.fetch"
TOP: Final = (
    *("--profile", "block", "--max-overhead", "0"),
    *("--json", "--batch", "3", "--interval", "1"),
)
_NS_A_WAIT: Final = 50_000 * SLOWNESS


@dataclass(frozen=True)
class Run:
    """Our profile, Go's own, what the routes logged, and what the terminal showed.

    `log` has for each route how often it waited, for how long until its waker ran, and until it
    went on, in nanoseconds.
    """

    ours: Profile
    go: Profile
    log: list[tuple[int, int, int]]
    screen: str


def record(version: str, folder: Path, *arguments: str, requests: int = REQUESTS) -> Run:
    own = folder / "go.prof"
    with Target.start(program("routes", version)) as target:
        with recording(target.pid, folder, "--by-handler", *arguments) as recorder:
            target.ask(f"go {requests} 2", "done")
            log = [tuple(route) for route in json.loads(target.expect("["))]
            recorder.interrupt()
            finished = recorder.finish()
        assert finished.code == 0, finished.stderr
        target.ask(f"write {own}", "written")
    go = pprof.decode(own.read_bytes(), kind="block")
    return Run(only_profile(folder), with_handlers([go])[0], log, finished.stdout.decode())


def by_handler(profile: Profile) -> dict[str, tuple[int, int]]:
    """The number of waits and their nanoseconds of each handler, by its function."""
    counts, delays = Counter[str](), Counter[str]()
    for sample in profile.samples:
        name = function_of(handler_label(sample) or "")
        counts[name] += sample.values[0]
        delays[name] += sample.values[1]
    return {name: (counts[name], delays[name]) for name in counts}


def function_of(handler: str) -> str:
    """The name of a handler without its route, which not all handlers have."""
    return handler.partition(": ")[0]


def route(number: int) -> str:
    return f"main.route{number:02d}"


@pytest.mark.parametrize("version", versions())
def test_waits_by_handler_equal_the_logs_of_routes_and_gos_own(
    version: str, tmp_path: Path
) -> None:
    def wrong_in_a_run(folder: Path) -> dict[str, str]:
        run = record(version, folder)
        ours, go = by_handler(run.ours), by_handler(run.go)
        assert {name for name in ours if name.startswith("main.")} == set(map(route, range(ROUTES)))
        wrong = {}
        for number, (count, woken_ns, waited_ns) in enumerate(run.log):
            name = route(number)
            if version in ELIDES_WRAPPERS and number >= FIRST_WRAPPED:
                count, woken_ns = count // 2, ours[name][1]
            assert ours[name][0] == go[name][0]
            if ours[name][0] != count:  # a wait that ended before the goroutine parked
                wrong[name] = f"{ours[name][0]} waits instead of {count}"
            assert ours[name][1] <= waited_ns
            for of, ns in (("Go", go[name][1]), ("the log", woken_ns)):
                if abs(ours[name][1] - ns) > max(ns // 100, count * _NS_A_WAIT):
                    wrong[f"{name}, {of}"] = f"{ours[name][1]} ns instead of {ns}"
        assert "by handler:" in run.screen
        assert "main.route19" in run.screen
        assert "channels 100 %" in run.screen
        return wrong

    agree_once(wrong_in_a_run, tmp_path)


@pytest.mark.full
@pytest.mark.parametrize("version", versions("1.22", "1.27"))
def test_estimates_by_handler_are_within_their_errors(version: str, tmp_path: Path) -> None:
    run = record(version, tmp_path, "--one-in-eight", requests=400)
    ours = by_handler(run.ours)
    errors = {found["name"]: float(found["percent"]) for found in _ERROR.finditer(run.screen)}
    assert set(errors) == set(map(route, range(ROUTES)))
    far = []
    for number, (_, woken_ns, _) in enumerate(run.log):
        name, delay_ns = route(number), ours[route(number)][1]
        if version in ELIDES_WRAPPERS and number >= FIRST_WRAPPED:
            continue
        if abs(delay_ns - woken_ns) > (3 * errors[name] + 1) * delay_ns / 100:
            far.append(f"{name}: {delay_ns} +- {errors[name]} %, not {woken_ns}")
    assert len(far) <= 1, far


@pytest.mark.parametrize(
    ("requests", "mode", "least_known"),
    [
        (25, ("--max-overhead", "0"), 1),
        *in_full(
            (150, ("--max-overhead", "0"), 1),
            (400, ("--max-overhead", "1"), 0.2),
            (1300, ("--one-in-eight",), 0.9),
        ),
    ],
)
def test_quantiles_by_handler_are_those_that_the_routes_logged(
    requests: int, mode: tuple[str, ...], least_known: float, tmp_path: Path
) -> None:
    """One wait in twenty takes four times as long, so p99 is that long, and p50 is not.

    `least_known`: of the quantiles of an estimate, not all are known.
    """

    def far_in_a_run(folder: Path) -> dict[str, str]:
        written = folder / "waits.json"
        arguments = ("--by-handler", "-f", "json", "-o", str(written), *mode)
        with Target.start(program("routes")) as target:
            with recording(target.pid, folder, *arguments) as recorder:
                target.ask(f"go {requests} 2", "done")
                target.expect("[")
                recorder.interrupt()
                finished = recorder.finish()
            assert finished.code == 0, finished.stderr
            target.say("lengths")
            logged = [sorted(lengths) for lengths in json.loads(target.expect("[["))]
        document = json.loads(written.read_bytes())
        rows = {function_of(row["name"]): row for row in document["handlers"]}
        served, error = document["requests"]
        # Of a request after which the next one came at once, there is no such wait.
        assert 0.8 * ROUTES * requests - 3 * error <= served <= ROUTES * requests + 3 * error
        far, known = {}, set()
        for number, lengths in enumerate(logged):
            row = rows[route(number)]
            apart_ns = 3 * row.get("error", 0.0) + len(lengths) * _NS_A_WAIT + sum(lengths) / 100
            if abs(row["value"] - sum(lengths)) > apart_ns:
                far[f"{number}, sum"] = f"{row['value']} +- {row.get('error')}, not {sum(lengths)}"
            for name, (middle_ns, least_ns, most_ns) in row["quantiles"].items():
                known.add((number, name))
                ns = lengths[math.ceil(QUANTILES[name] * len(lengths)) - 1]
                is_estimate = "error" in row
                # The longest wait of an estimate is that of those that were seen.
                if most_ns is None or (is_estimate and name == "max"):
                    most_ns = math.inf
                # The limits of an estimate are one standard error away.
                room = (middle_ns - least_ns if is_estimate else 0) + _NS_A_WAIT + ns / 100
                if not least_ns - room <= ns <= most_ns + room:
                    far[f"{number}, {name}"] = f"{least_ns} to {most_ns}, not {ns}"
        names = ("p50", "max") if requests < 100 else ("p50", "p99", "max")
        wanted = {(number, name) for number in range(ROUTES) for name in names}
        assert len(known & wanted) >= least_known * len(wanted)
        return far

    agree_once(far_in_a_run, tmp_path)


@pytest.mark.full
def test_time_of_goroutines_that_a_handler_started_belongs_to_it(tmp_path: Path) -> None:
    """Of a closure in the handler, and of `go f(x)`, whose wrapper no goroutine profile shows."""
    with Target.start(program("routes")) as target:
        with recording(target.pid, tmp_path, "--profile", "wall", "--by-handler") as recorder:
            target.ask("go 100 2", "done")
            recorder.interrupt()
            assert recorder.finish().code == 0
        profile = only_profile(tmp_path)
    roots = {
        sample.locations[-1].frames[-1].function
        for sample in profile.samples
        if function_of(handler_label(sample) or "") in (route(15), route(19))
    }
    assert {f"{route(15)}.func1", f"{route(19)}.gowrap1"} <= roots


@pytest.mark.parametrize("kind", ["block", *in_full("wall")])
@pytest.mark.parametrize("version", versions("1.22", "1.27"))
def test_handlers_have_the_route_of_their_requests(version: str, kind: str, tmp_path: Path) -> None:
    """From Go 1.23 on that of net/http's mux; before, a path that several connections had."""
    with Target.start(program("routes", version)) as target:
        arguments = ("--by-handler", "--profile", kind, "--duration", "3")
        with recording(target.pid, tmp_path, *arguments) as recorder:
            target.say("go 1000000 100")
            assert recorder.finish().code == 0
        target.kill()
    names = {handler_label(sample) for sample in only_profile(tmp_path).samples}
    known = {name for name in names if name and name.startswith("main.route")}
    right = {f"{route(number)}: GET /{number:02d}" for number in range(ROUTES)}
    assert known <= right | {*map(route, range(ROUTES))}
    if version not in WITHOUT_PATTERN:
        assert len(known & right) >= ROUTES - 3  # beside other tests there are few samples


@pytest.mark.parametrize("least_ms", [300, *in_full(1)])
@pytest.mark.parametrize("protocol", ["http1", "http2"])
@pytest.mark.parametrize(
    ("version", "mode"),
    # net/http of Go 1.19 and older does not say that the slot of the connection is live.
    builds(*(each for each in BUILDS if each[0] in VERSIONS[VERSIONS.index("1.20") :])),
)
def test_dumps_have_the_request_of_each_waiting_handler(
    version: str, mode: str, protocol: str, least_ms: int
) -> None:
    """The path of a request is that of the route whose handler is on the stack, each time."""
    with Target.start(program("routes", version, mode), protocol) as target:
        target.say(f"go 1000000 {least_ms}")
        with OpenProcesses().open(target.pid) as process:
            dumper = GoroutineDumper(process.go())
            dumps = [dumper.dump(apart_s=0) for _ in range(DUMPS)]
        target.kill()
    wrong, known, handling, found = [], 0, 0, 0
    for goroutine in (one for dump in dumps for one in dump.goroutines):
        names = {frame.function for frame in goroutine.frames}
        routes = {name[-2:] for name in names if re.fullmatch(r"main\.route\d\d", name)}
        request = goroutine.request
        serves = any(name.endswith((".(*conn).serve", ").runHandler")) for name in names)
        handling += bool(routes) and serves
        known += request is not None
        pattern = "" if version in WITHOUT_PATTERN else f"/{''.join(routes)}"
        if request is None:
            continue
        # Where frames don't have the request of net/http that has it, there is none (HTTP/2, 1.27).
        found += request.pattern == pattern
        patterns = (pattern, "") if protocol == "http2" and version == NEWEST else (pattern,)
        if request not in [HttpRequest("GET", f"/{''.join(routes)}", each) for each in patterns]:
            wrong.append((request, sorted(names)))
    assert wrong == []
    assert found >= known / 2
    # Short waits have often ended when they are read: then nothing is said of them.
    assert known >= (0.8 * handling if least_ms > 1 else 1)


@pytest.mark.parametrize("kind", ["wall", *in_full("block")])
def test_the_network_of_a_handler_is_by_peer(kind: str, tmp_path: Path) -> None:
    """A handler that waits 30 ms for an answer, and then 10 ms for a byte of another peer.

    The block profile has no reads of sockets.
    """
    written = tmp_path / "waits.json"
    arguments = ("--by-handler", "--profile", kind, "-f", "json", "-o", str(written))
    with Target.start(program("upstreams")) as target:
        _, answering, sending = target.expect("peers").split()
        target.ask("go 8", "going")
        with recording(target.pid, tmp_path, *arguments, "--duration", "3") as recorder:
            assert recorder.finish().code == 0
        target.kill()
    (row,) = (
        one for one in json.loads(written.read_bytes())["handlers"] if one["name"].startswith(FETCH)
    )
    peers = row["peers"]
    seen = sum(peers.values())
    assert seen >= 4  # a busy machine has few samples
    if kind == "block":
        assert set(peers) == {answering}
        return
    assert answering in peers
    assert set(peers) <= {answering, sending}
    assert row["parts"]["network"] >= 0.9 * row["value"]
    # Of eight clients, two at least are in the same place in a sample by chance.
    assert abs(peers[answering] / seen - 0.75) <= 4 * math.sqrt(0.75 * 0.25 * 8 / seen)


def test_the_live_table_has_handlers_with_their_routes() -> None:
    """The sums of a row go on when its route becomes known."""
    with Target.start(program("routes")) as target:
        target.say("go 1000000 100")
        done = verb("top", "--pid", str(target.pid), "--by-handler", *TOP)
        target.kill()
    assert done.code == 0, done.stderr
    tables = [json.loads(line)["tables"][0] for line in done.stdout.splitlines()]
    totals = [Counter[str]() for _ in tables]
    for table, total in zip(tables, totals, strict=True):
        for row in table["rows"]:
            total[function_of(row["name"])] += row["total_count"]
    names = {row["name"] for row in tables[-1]["rows"] if row["name"].startswith("main.route")}
    right = {f"{route(number)}: GET /{number:02d}" for number in range(ROUTES)}
    assert names <= right | {*map(route, range(ROUTES))}
    assert len(names & right) >= ROUTES // 2  # a busy machine has few samples
    for before, after in pairwise(totals):
        assert all(after[name] >= count for name, count in before.items())
    waits = [sum(total.values()) for total in totals]
    assert waits == sorted(waits)
