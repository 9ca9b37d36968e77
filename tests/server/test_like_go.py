"""The answers beside those of a real net/http/pprof, asked for the same, of Go 1.19 and 1.27.

The two run over the same process: it has an endpoint of its own, and is served by us.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from ebpfprof.profile.model import Kind, Location, Profile
from ebpfprof.server.pprof_text import aligned
from tests.differential.mutexes import leaf
from tests.server.go_pair import Pair
from tests.server.serving import Answer, ask

# Of the transport, not of the answer.
TRANSPORT = {"date", "content-length", "transfer-encoding", "connection"}
# What a trace lacks: Go has no place for it. On a busy machine a trace may lack something.
OURS = {"x-ebpfprof-comments"}


def headers(answer: Answer) -> dict[str, str]:
    left_out = TRANSPORT | OURS
    return {name: value for name, value in answer.headers.items() if name not in left_out}


@pytest.mark.parametrize("method", ["GET", "HEAD"])
@pytest.mark.parametrize(
    "path",
    [
        "/block?seconds=0",
        "/block?seconds=-5",
        "/block?seconds=1.5",
        "/block?seconds=x",
        "/block?seconds=%20",
        "/block?seconds=99999999999999999999",
        "/block?seconds=x&debug=1",
        "/mutex?seconds=1&debug=1",
        "/mutex?seconds=1&debug=-1",
        "/mutex?seconds=1&debug=99999999999999999999",
        "/goroutine?seconds=0",
        "/goroutine?seconds=x&debug=2",
        "/goroutine?seconds=1&debug=2",
        "/cmdline",
        "/symbol",
        "/symbol?0x1+junk++0x2",
        "/symbol?" + "1" * 4095 + "+0x1",
        "/symbol?" + "1" * 5000 + "+0x1",
    ],
)
def test_whole_answers_equal_gos(pair: Pair, path: str, method: str) -> None:
    go, ours = pair.both(path, method=method)
    assert ours.status == go.status
    assert headers(ours) == headers(go)
    assert ours.body == go.body
    assert ours.headers["content-length"] == go.headers.get(
        "content-length", ours.headers["content-length"]
    )


@pytest.mark.parametrize("path", ["/nonsense", "/nonsense?seconds=x", "/block/", "/Block"])
def test_an_unknown_profile_is_refused_in_gos_words_with_what_there_is(
    pair: Pair, path: str
) -> None:
    go, ours = pair.both(path)
    assert (ours.status, headers(ours)) == (go.status, headers(go))
    gos = go.body.decode().removesuffix("\n")
    assert ours.body.decode().startswith(f"{gos}. Process ")
    assert ours.body.decode().endswith(
        "allocs, block, cmdline, goroutine, heap, mutex, profile, symbol, threadcreate, threads, "
        "trace, wall.\n"
    )


# Go makes one CPU profile and one trace at a time.
CPU_PROFILES = ("/profile?seconds=1", "/profile?seconds=1&debug=1")
TRACE = "/trace?seconds=0.2"
PROFILES = (
    "/",
    "/block",
    "/mutex",
    "/block?debug=0",
    "/block?debug=junk",
    "/block?debug=1",
    "/mutex?debug=-1",
    "/mutex?debug=2",
    "/block?gc=1",
    "/mutex?seconds=1",
    "/mutex?seconds=%2b1",
    "/mutex?seconds=%zz",
    "/block?seconds=1&seconds=x",
    "/block?seconds=1&debug=x",
    "/block?seconds=x;&seconds=1",
    "/goroutine",
    "/goroutine?debug=junk",
    "/goroutine?debug=1",
    "/goroutine?debug=2",
    "/goroutine?debug=3&gc=1",
    "/goroutine?debug=-1",
    "/goroutine?seconds=1",
)


@pytest.fixture(scope="module")
def answers(pair: Pair) -> dict[str, tuple[Answer, Answer]]:
    """Go's answer and ours for each of these paths, all of which record at the same time."""

    def one_by_one(paths: Sequence[str]) -> dict[str, tuple[Answer, Answer]]:
        return {path: pair.both(path) for path in paths}

    groups = [CPU_PROFILES, (TRACE,), *(PROFILES[start::8] for start in range(8))]
    with ThreadPoolExecutor(len(groups)) as pool:
        return dict(item for found in pool.map(one_by_one, groups) for item in found.items())


@pytest.mark.parametrize("path", [*PROFILES, *CPU_PROFILES, TRACE])
def test_status_and_headers_of_profiles_equal_gos(
    answers: dict[str, tuple[Answer, Answer]], path: str
) -> None:
    go, ours = answers[path]
    assert ours.status == go.status == 200
    assert headers(ours) == headers(go)


@pytest.mark.full
@pytest.mark.parametrize("query", ["seconds=x", "seconds=-1&debug=1"])
def test_a_trace_of_an_odd_length_has_gos_status_and_headers(pair: Pair, query: str) -> None:
    go, ours = pair.both(f"/trace?{query}")
    assert ours.status == go.status == 200
    assert headers(ours) == headers(go)


def test_methods_and_trailing_slashes_are_as_in_the_newest_go(pair: Pair) -> None:
    go, ours = pair.both("")
    newest = pair.minor == "1.27"
    assert (ours.status, ours.headers["location"]) == (307, "/debug/pprof/")
    assert go.headers["location"] == ours.headers["location"]
    assert (go.status == ours.status) == newest
    go, ours = pair.both("/cmdline", method="POST")
    assert ours.status == 405
    assert (go.status == 405) == newest
    if newest:
        assert (headers(ours), ours.body) == (headers(go), go.body)


@pytest.mark.parametrize(
    "path",
    ["//block?seconds=1&debug=1", "/./block", "/x/../block?x=//", "//", "/../pprof/", "/%2fblock"],
)
def test_a_path_with_a_double_slash_is_redirected(pair: Pair, path: str) -> None:
    """As with a prefix that ends with a slash."""
    go, ours = pair.both(path)
    if pair.minor == "1.27":
        assert ours.status == go.status
        assert ours.headers.get("location") == go.headers.get("location")
        assert ours.status in (307, 404)
    prefixed = pair.ours.get(f"/proc/{pair.target.pid}//debug/pprof{path}")
    assert prefixed.status == 307
    assert prefixed.headers["location"].startswith(f"/proc/{pair.target.pid}/debug/pprof/")


STACKS = {
    "block": {"main.holdLock", "main.handOver"},
    "mutex": {"main.holdLock"},
}


def functions(locations: tuple[Location, ...]) -> tuple[str, ...]:
    return tuple(
        f"{frame.function}:{frame.line}" for location in locations for frame in location.frames
    )


def is_of_runtime_lock(kind: str, leaf: str) -> bool:
    """Whether a stack of Go's is of a lock of the runtime's own, taken beneath the program's.

    Go's mutex profile has them (1.22 on) whenever two threads meet; ours if it is asked for.
    """
    return kind == "mutex" and leaf.startswith("runtime.")


def without_runtime_locks(profile: Profile, kind: str) -> Profile:
    kept = tuple(s for s in profile.samples if not is_of_runtime_lock(kind, leaf(s)))
    return replace(profile, samples=kept)


def work(profile: Profile, kind: str) -> dict[tuple[str, ...], int]:
    """The stacks of what the program works at, with their addresses, and how often they were."""
    found: dict[tuple[str, ...], int] = {}
    for sample in profile.samples:
        names = {frame.function for location in sample.locations for frame in location.frames}
        if names & STACKS[kind]:
            addresses = tuple(hex(location.address) for location in sample.locations)
            key = functions(sample.locations) + addresses
            found[key] = found.get(key, 0) + sample.values[0]
    return found


@pytest.mark.parametrize("kind", ["block", "mutex"])
@pytest.mark.parametrize("query", ["?seconds=1", ""])
def test_block_and_mutex_profiles_have_gos_fields(pair: Pair, kind: Kind, query: str) -> None:
    answers = pair.both(f"/{kind}{query}")
    go, ours = (answer.profile(kind) for answer in answers)

    assert ours.sample_types == go.sample_types
    assert (ours.period_type, ours.period) == (go.period_type, go.period)
    assert (ours.duration_ns > 0) == (go.duration_ns > 0) == bool(query)
    assert abs(ours.time_ns - go.time_ns) < 30e9
    assert ours.mappings[0] == go.mappings[0]
    seen = work(ours, kind)
    assert seen.keys() == work(without_runtime_locks(go, kind), kind).keys()
    assert all(count > 0 for count in seen.values())


def test_the_cpu_profile_has_gos_fields(pair: Pair) -> None:
    answers = pair.both("/profile?seconds=1")
    go, ours = (answer.profile("cpu") for answer in answers)

    assert ours.sample_types == go.sample_types
    assert ours.period_type == go.period_type
    assert abs(ours.time_ns - go.time_ns) < 30e9
    # Go's own may end some microseconds early, by its clock.
    assert ours.duration_ns >= 1e9
    assert go.duration_ns >= 0.999e9
    assert ours.mappings[0] == go.mappings[0]


def test_names_of_addresses_equal_gos(pair: Pair) -> None:
    go, _ = pair.both("/block")
    addresses = sorted(
        {location.address for s in go.profile("block").samples for location in s.locations}
    )
    assert addresses
    query = "+".join(hex(address) for address in addresses)
    go, ours = pair.both(f"/symbol?{query}")
    assert ours.body == go.body
    assert ours.body.count(b"\n") > len(addresses)
    posted = ask(pair.ours.address, "/debug/pprof/symbol", method="POST", body=query.encode())
    assert posted.body == go.body


# A line of a frame: address, function and how far it lies behind its beginning, file and line.
FRAME = re.compile(r"#\t(0x[0-9a-f]+)\t+(\S+)\+0x[0-9a-f]+\t+(\S+:\d+)")
STACK = re.compile(r"^\d+ \d+ @(?: 0x[0-9a-f]+)+$", re.MULTILINE)


def frame_lines(text: str) -> list[list[str]]:
    """The lines of the frames of each stack."""
    return [each.strip("\n").split("\n") for each in STACK.split(text)[1:]]


def work_lines(text: str, kind: str) -> set[tuple[tuple[str, str], ...]]:
    """Functions and lines of the stacks of what the program works at."""
    found = set()
    for lines in frame_lines(text):
        frames = [FRAME.fullmatch(line) for line in lines]
        stack = tuple((match[2], match[3]) for match in frames if match)
        assert len(stack) == len(lines), lines
        if {name for name, _ in stack} & STACKS[kind]:
            found.add(stack)
    return found


@pytest.mark.parametrize("kind", ["block", "mutex"])
def test_the_text_form_equals_gos(pair: Pair, kind: str) -> None:
    go, ours = (answer.body.decode() for answer in pair.both(f"/{kind}?debug=1"))

    def header(text: str) -> str:
        return re.sub(r"(?<=second=)\d+", "N", text[: STACK.search(text).start()])  # type: ignore[union-attr]  # it has a stack

    assert header(ours) == header(go)
    expected = {s for s in work_lines(go, kind) if not is_of_runtime_lock(kind, s[0][0])}
    assert expected
    assert work_lines(ours, kind) == expected
    assert ours.endswith("\n\n")
    assert go.endswith("\n\n")
    # Our columns are those of text/tabwriter: aligned from their cells, Go's lines are the same.
    for lines in frame_lines(go):
        assert aligned([re.split(r"\t+", line) for line in lines]) == lines


def test_offsets_equal_gos(pair: Pair) -> None:
    """Where nothing was inlined; otherwise Go shows a call at an address that it made up."""
    pattern = re.compile(r"#\t(0x[0-9a-f]+)\t+(runtime\.chanrecv2\+0x[0-9a-f]+)\t+")
    go, ours = (pattern.search(a.body.decode()) for a in pair.both("/block?debug=1"))
    assert go is not None
    assert ours is not None
    assert ours.groups() == go.groups()


def test_the_index_has_the_shape_of_gos(pair: Pair) -> None:
    go, ours = (answer.body.decode() for answer in pair.both("/"))
    row = re.compile(r"<tr><td>\d+</td><td><a href='(\w+)\?debug=1'>(\w+)</a></td></tr>")
    assert set(row.findall(ours)) - {(name, name) for name in ("symbol", "threads", "wall")} <= set(
        row.findall(go)
    )
    described = re.compile(r"<li><div class=profile-name>(\w+): </div> (.*)</li>")
    texts, gos = dict(described.findall(ours)), dict(described.findall(go))
    assert set(texts) == {
        *("allocs", "block", "cmdline", "goroutine", "heap", "mutex", "profile", "symbol"),
        *("threadcreate", "threads", "trace", "wall"),
    }
    # Go 1.19 knows ?debug=2, but does not say so here.
    assert texts.pop("goroutine").startswith(gos["goroutine"])
    for name, text in texts.items():
        assert text.replace("&#x27;", "&#39;") == gos.get(name, text.replace("&#x27;", "&#39;"))
