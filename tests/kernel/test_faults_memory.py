"""Memory of the target that is paged out while it is recorded: what can't be read is counted."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ebpfprof.options import Options
from ebpfprof.session import Session
from tests.kernel.kernel_state import has_probes
from tests.kernel.paging import page_out, swap, swapped_bytes
from tests.kernel.unharmed import ALL_PROFILES, await_true, check, checker, whole_profiles
from tests.recorder import recording
from tests.toolchains import cache_dir


@pytest.fixture(scope="module")
def room() -> Iterator[None]:
    with swap(cache_dir()):
        yield


@pytest.mark.usefixtures("room")
@pytest.mark.parametrize("block_rate_ns", [1, 1000])
def test_stacks_that_are_paged_out_are_cut_and_counted(block_rate_ns: int) -> None:
    """The kernel may not wait for memory where a probe is hit: it cuts the stack there."""
    options = Options(kinds=("block",), block_rate_ns=block_rate_ns)
    with checker("spread") as target, Session([target.pid], options) as session:
        session.start()

        def cut_short() -> int:
            page_out(target.pid)
            lost = {loss.name: loss.count for loss in session.losses()}
            return lost.get("stack_unreadable", 0)

        await_true(lambda: cut_short() > 0, "all stacks could be read")
        assert swapped_bytes(target.pid) > 0
        check(target)
        (report,) = session.finish()
        (lost,) = [loss for loss in session.losses() if loss.name == "stack_unreadable"]
        (profile,) = report.profiles
    assert f"lost: {lost}" in profile.comments
    # Those that are cut count all the same.
    assert sum(sample.values[0] for sample in profile.samples) > lost.count


@pytest.mark.usefixtures("room")
def test_all_profiles_of_a_target_that_is_paged_out_again_and_again(tmp_path: Path) -> None:
    """Its code with the probes in it, its tables, its stacks; also while they are put in."""
    with checker("spread", "procs") as target:
        page_out(target.pid)
        with recording(target.pid, tmp_path, *ALL_PROFILES) as recorder:
            for _ in range(5):
                page_out(target.pid)
            assert has_probes(target.pid)
            check(target)
            page_out(target.pid)
            recorder.interrupt()
            page_out(target.pid)
            finished = recorder.finish()
        assert finished.code == 0, finished.stderr
        assert "Traceback" not in finished.stderr
    assert len(whole_profiles(tmp_path)) == 4
