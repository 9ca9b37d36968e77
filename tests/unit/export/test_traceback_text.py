"""The text of tracebacks: what tests/differential/test_tracebacks.py can't make a program do."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ebpfprof.export import traceback_text
from ebpfprof.export.traceback_text import header, is_shown_name, text
from ebpfprof.profile.tracebacks import (
    CallSite,
    LogicalCall,
    PhysicalCall,
    TracebackStyle,
    TracedGoroutine,
)
from symbolizer import GoVersion, layout_for
from symbolizer.go.arguments import Argument
from symbolizer.go.runtime_layout import TracebackRules

MINUTE_NS = 60_000_000_000


def rules(minor: int) -> TracebackRules:
    return layout_for(GoVersion(minor)).tracebacks


def style(minor: int) -> TracebackStyle:
    return TracebackStyle(rules(minor), True, 128)


def site(*names: str, wrappers: tuple[str, ...] = ()) -> CallSite:
    calls = (
        LogicalCall(name, "/x.go", 7, 0x1000, 16, name in wrappers, name != "runtime.gopanic")
        for name in names
    )
    return CallSite(tuple(calls), 17)


def goroutine(*sites: CallSite) -> TracedGoroutine:
    return TracedGoroutine(
        goid=5,
        status="chan receive",
        reason="ChanReceive",
        is_waiting=True,
        is_leaked=False,
        is_scanned=False,
        waited_ns=0,
        is_locked=False,
        bubble=None,
        labels=None,
        frames=tuple(PhysicalCall(each, ()) for each in sites),
        has_stack=True,
        is_whole=True,
        unknown_pc=0,
        start=None,
        creator=None,
        parent=0,
    )


def lines(each: TracedGoroutine, minor: int = 27) -> list[str]:
    return text([each], style(minor)).decode().splitlines()


def names(each: TracedGoroutine, minor: int = 27) -> list[str]:
    """The functions of the frames that are shown."""
    return [line.rpartition("(")[0] for line in lines(each, minor)[1:] if line[0] != "\t"]


def test_headers_have_what_the_version_knows() -> None:
    each = replace(
        goroutine(),
        status="sleep",
        reason="Sleep",
        is_scanned=True,
        waited_ns=3 * MINUTE_NS - 1,
        is_locked=True,
        bubble=9,
        labels=((b"a b", b"c"), (b"d", b"")),
    )
    heads = {
        minor: header(each, rules(minor), shows_labels=minor > 25) for minor in (23, 25, 26, 27)
    }
    start = "goroutine 5 [sleep (scan)"
    behind = ", 2 minutes, locked to thread"
    in_bubble = f"{start} (durable){behind}, synctest bubble 9"
    assert heads[25] == f"{in_bubble}]:\n"
    assert heads[26] == f'{in_bubble} labels:{{"a b": "c", "d": ""}}]:\n'
    assert heads[27] == f'{in_bubble}] {{"a b": c, d: }}:\n'
    in_group = header(replace(each, bubble=1), rules(24), shows_labels=False)
    assert in_group == f"{start}{behind}, synctest group 1]:\n"
    none = replace(each, bubble=None, labels=())
    assert header(none, rules(27), shows_labels=True) == f"{start}{behind}]:\n"


def test_go_1_25_calls_a_goroutine_durable_by_its_last_wait() -> None:
    each = replace(goroutine(), status="runnable", reason="Sleep", is_waiting=False, bubble=2)
    assert header(each, rules(25), shows_labels=False) == (
        "goroutine 5 [runnable (durable), synctest bubble 2]:\n"
    )
    assert header(each, rules(26), shows_labels=False) == (
        "goroutine 5 [runnable, synctest bubble 2]:\n"
    )
    durable = replace(each, status="chan receive (durable)", reason="SynctestChanReceive")
    assert "(durable)," in header(durable, rules(25), shows_labels=False)
    assert "(durable) (durable)" not in header(durable, rules(25), shows_labels=False)


def test_leaked_goroutines_are_reported_from_go_1_26_on() -> None:
    each = replace(goroutine(), is_waiting=False, is_leaked=True)
    assert header(each, rules(26), shows_labels=False) == "goroutine 5 [chan receive (leaked)]:\n"


@pytest.mark.parametrize(
    ("name", "is_shown"),
    [
        *(("main.main", True), ("runtime/pprof.Do", True), ("runtime.gopark", False)),
        *(("runtime.Gosched", True), ("nodot", False), ("runtime.", False), ("", False)),
    ],
)
def test_the_runtimes_own_functions_are_hidden(name: str, is_shown: bool) -> None:
    for minor in (19, 22, 23, 27):
        assert is_shown_name(name, rules(minor)) == is_shown


def test_exported_methods_of_the_runtime_are_shown_from_go_1_23_on() -> None:
    for name in ("runtime.(*Func).Entry", "runtime.Frames.Next"):
        assert is_shown_name(name, rules(23))
    for name in ("runtime.(*mheap).Alloc", "runtime.Func.entry", "runtime.(*)."):
        assert not is_shown_name(name, rules(27))
    assert is_shown_name("runtime.Frames.next", rules(22))
    assert not is_shown_name("runtime.(*Func).Entry", rules(22))


def test_a_stack_of_the_runtime_alone_is_shown_whole() -> None:
    each = goroutine(site("runtime.gopark"), site("runtime.inner", "runtime.bgsweep"))
    assert lines(each)[1:] == [
        *("runtime.gopark()", "\t/x.go:7 +0x11"),
        *("runtime.inner(...)", "\t/x.go:7"),
        *("runtime.bgsweep()", "\t/x.go:7 +0x11"),
    ]


def test_panics_are_shown_but_for_the_innermost_frame() -> None:
    panicking = (site("runtime.gopanic"), site("main.f"))
    assert names(goroutine(*panicking)) == ["main.f"]
    assert names(goroutine(site("main.deferred"), *panicking)) == [
        "main.deferred",
        "panic",
        "main.f",
    ]


def test_wrappers_are_shown_only_where_they_panicked() -> None:
    wrapper = site("main.(*T).m", wrappers=("main.(*T).m",))
    called = goroutine(site("main.T.m"), wrapper, site("main.f"))
    assert names(called) == ["main.T.m", "main.f"]
    panicked = goroutine(site("main.deferred"), site("runtime.gopanic"), wrapper, site("main.f"))
    assert names(panicked) == ["main.deferred", "panic", "main.(*T).m", "main.f"]


def test_finalizers_are_shown_from_go_1_25_on() -> None:
    loop = LogicalCall("runtime.runFinalizers", "/x.go", 7, 0x1000, 16, is_finalizer=True)
    each = goroutine(site("main.finalize"), CallSite((loop,), 17))
    assert names(each, 25) == ["main.finalize", "runtime.runFinalizers"]
    assert names(each, 24) == ["main.finalize"]


def test_arguments_are_hexadecimal() -> None:
    call = LogicalCall("main.f", "/x.go", 7, 0x1000, 0)
    tokens = ("{", Argument(0, 8, True), ", ", Argument(8, 8, False), "}, ", Argument(16, 1, True))
    frame = PhysicalCall(CallSite((call,), 0, tokens), (0, 0xC000, None))
    assert lines(replace(goroutine(), frames=(frame,)))[1:] == [
        "main.f({0x0, 0xc000?}, _)",
        "\t/x.go:7",
    ]


def deep(inner: int, outer: int) -> TracedGoroutine:
    """Frames of the runtime, then logical frames, two for each physical one."""
    sites = [site("runtime.gopark")] * inner
    return goroutine(*sites, *[site("main.a", "main.b")] * (outer // 2))


@pytest.mark.parametrize("count", [98, 100, 102, 104, 200])
def test_the_middle_of_deep_stacks_is_left_out(count: int) -> None:
    found = lines(deep(3, count))[1:]
    elided = [line for line in found if "elided" in line]
    assert elided == ([f"...{count - 100} frames elided..."] if count > 100 else [])
    assert len(found) - len(elided) == 2 * min(count, 100)
    if elided:
        assert found.index(elided[0]) == 100


def test_go_1_19_shows_the_beginning_of_a_deep_stack() -> None:
    """Of 100 physical frames; it says that there are more only if exactly 100 are shown."""
    many = goroutine(*[site("main.f")] * 101)
    assert lines(many, 19)[-1] == "...additional frames elided..."
    assert len(names(many, 19)) == 101
    fewer = goroutine(site("runtime.gopark"), *[site("main.f")] * 101)
    assert names(fewer, 19) == ["main.f"] * 99


def test_the_creator_is_reported_unless_it_is_the_runtimes() -> None:
    by = replace(goroutine(site("main.f")), creator=site("main.go"), parent=3)
    assert lines(by)[3:] == ["created by main.go in goroutine 3", "\t/x.go:7 +0x11"]
    assert lines(replace(by, parent=0))[3:] == ["created by main.go", "\t/x.go:7 +0x11"]
    assert lines(replace(by, goid=1))[3:] == []
    assert lines(replace(by, creator=site("runtime.main")))[3:] == []


def test_what_is_missing_is_reported() -> None:
    running = replace(goroutine(), status="running", has_stack=False, is_whole=False)
    assert lines(replace(running, creator=site("main.go"))) == [
        "goroutine 5 [running]:",
        "\tgoroutine running on other thread; stack unavailable",
        *("created by main.go", "\t/x.go:7 +0x11"),
    ]
    cut = replace(goroutine(site("main.f")), is_whole=False)
    assert lines(cut)[3:] == ["...additional frames elided..."]
    lost = replace(cut, unknown_pc=0xBAD)
    assert lines(lost)[3:] == [
        "runtime: g 5: unexpected return pc for main.f called from 0xbad",
    ]


def test_names_do_nothing_to_a_terminal() -> None:
    assert lines(goroutine(site("main.\x1b[2J")))[1] == "main.\\x1b[2J()"


def test_the_text_is_cut_where_go_cuts_it(monkeypatch: pytest.MonkeyPatch) -> None:
    each = goroutine(site("main.f"))
    whole = text([each] * 3, style(27))
    monkeypatch.setattr(traceback_text, "MOST_BYTES", 70)
    assert text([each] * 1000, style(27)) == whole[:70]
