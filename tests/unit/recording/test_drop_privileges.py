"""Which rights stay during a recording, on kernels that need different ones."""

from __future__ import annotations

import pytest

from ebpfprof.kernel import perf_events, uprobe_links
from ebpfprof.privileges.capabilities import NUMBERS, effective, set_aside
from ebpfprof.profile.model import Kind
from ebpfprof.profilers.options import Options
from ebpfprof.recording import drop_privileges

pytestmark = pytest.mark.machine

ADMIN = "CAP_SYS_ADMIN"


@pytest.fixture
def kept(monkeypatch: pytest.MonkeyPatch) -> list[set[str]]:
    """What is kept each time rights are given up, which they are not."""
    found: list[set[str]] = []
    monkeypatch.setattr(drop_privileges, "_give_up", lambda keep: found.append(set(keep)))
    monkeypatch.setattr(uprobe_links, "is_offered", lambda: True)
    return found


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
    kept: list[set[str]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def may_open_events() -> bool:
        assert NUMBERS[ADMIN] not in effective()
        return not events_take_admin

    monkeypatch.setattr(perf_events, "may_open_events", may_open_events)
    options = Options(kinds=kinds)
    drop_privileges.give_up_before_recording(options, writes=True)
    drop_privileges.give_up_probing(options)
    assert [ADMIN in each for each in kept] == [stays, stays]


def test_a_right_set_aside_is_restored() -> None:
    before = effective()
    assert NUMBERS[ADMIN] in before
    with set_aside(ADMIN):
        assert effective() == before - {NUMBERS[ADMIN]}
    with pytest.raises(ValueError, match="inside"), set_aside(ADMIN):
        raise ValueError("inside")
    assert effective() == before


def test_perf_events_are_opened_as_a_check() -> None:
    assert perf_events.may_open_events()
