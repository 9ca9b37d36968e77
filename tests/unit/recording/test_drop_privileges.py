"""Which rights stay during a recording, on kernels that need different ones."""

from __future__ import annotations

import os
from typing import Any

import pytest

from ebpfprof.kernel import perf_events, uprobe_links
from ebpfprof.privileges.capabilities import NUMBERS, effective, set_aside
from ebpfprof.privileges.checks import RECORDING, WRITING
from ebpfprof.profile.model import Kind
from ebpfprof.profilers.options import Options
from ebpfprof.recording.drop_privileges import (
    give_up_before_recording,
    needed_after_probing,
    needed_to_record,
)

ADMIN = "CAP_SYS_ADMIN"


@pytest.mark.parametrize("writes", [False, True])
@pytest.mark.parametrize("has_child", [False, True])
def test_rights_to_write_and_to_signal_a_child_stay_if_asked(writes: bool, has_child: bool) -> None:
    options = Options(("goroutine",))
    found = needed_to_record(options, writes=writes, has_child=has_child, pids=())
    more = (WRITING if writes else set()) | ({"CAP_KILL"} if has_child else set())
    assert found - {ADMIN} == RECORDING | more


@pytest.mark.parametrize("more", [{}, {"writes": True}, {"has_child": True}])
def test_a_process_keeps_no_more_rights_than_it_asks_for(more: dict[str, Any]) -> None:
    options = Options(("goroutine",))
    held, reads, writes = effective(), *os.pipe()
    child = os.fork()
    if not child:
        try:
            give_up_before_recording(options, **more)
            os.write(writes, ",".join(map(str, sorted(effective()))).encode())
        finally:
            os._exit(0)
    os.close(writes)
    kept = {int(number) for number in os.read(reads, 1000).split(b",") if number}
    os.close(reads)
    os.waitpid(child, 0)
    asked = {"writes": False, "has_child": False} | more
    wanted = needed_to_record(options, pids=(), **asked)
    assert kept == held & {NUMBERS[name] for name in wanted}


def test_after_all_probes_are_attached_rights_to_record_and_to_write_stay() -> None:
    assert needed_after_probing(Options(("goroutine",))) - {ADMIN} == RECORDING | WRITING


def test_admin_rights_stay_only_where_they_replace_others() -> None:
    options = Options(("goroutine",))
    has_all = {NUMBERS["CAP_BPF"], NUMBERS["CAP_PERFMON"]} <= effective()
    before = needed_to_record(options, writes=True, has_child=True, pids=())
    assert (ADMIN in before, ADMIN in needed_after_probing(options)) == (not has_all, not has_all)


@pytest.mark.machine
@pytest.mark.parametrize(
    ("kinds", "events_take_admin", "stays"),
    [
        (("cpu",), True, True),
        (("block", "mutex", "cpu"), True, True),
        (("block", "mutex"), True, False),
        (("cpu",), False, False),
    ],
)
def test_cap_sys_admin_stays_if_perf_events_need_it(
    kinds: tuple[Kind, ...],
    events_take_admin: bool,
    stays: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def may_open_events() -> bool:
        assert NUMBERS[ADMIN] not in effective()
        return not events_take_admin

    monkeypatch.setattr(uprobe_links, "is_offered", lambda: True)
    monkeypatch.setattr(perf_events, "may_open_events", may_open_events)
    options = Options(kinds=kinds)
    before = needed_to_record(options, writes=True, has_child=False, pids=())
    assert (ADMIN in before, ADMIN in needed_after_probing(options)) == (stays, stays)


@pytest.mark.machine
def test_a_right_set_aside_is_restored() -> None:
    before = effective()
    assert NUMBERS[ADMIN] in before
    with set_aside(ADMIN):
        assert effective() == before - {NUMBERS[ADMIN]}
    with pytest.raises(ValueError, match="inside"), set_aside(ADMIN):
        raise ValueError("inside")
    assert effective() == before


@pytest.mark.machine
def test_perf_events_are_opened_as_a_check() -> None:
    assert perf_events.may_open_events()
