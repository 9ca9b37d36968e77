"""Selecting processes by pid, name and container."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ebpfprof.discovery.processes import (
    GoProcess,
    ProcessTable,
    Survey,
    descends,
    fields_of_stat,
    find,
    has_kernel_flag,
    not_seen,
)
from ebpfprof.errors import NoSuchProcess
from ebpfprof.privileges.checks import way_out
from ebpfprof.system.channel import Frame

Selection = Callable[..., list[int]]
ID, OTHER = "4f1c0e6a" * 8, "4f1c0eff" * 8
FIRST = (1, 2)
IMPOSSIBLE = 1 << 30  # no pid is as large, so none of these is ours


def go_process(
    number: int, name: str, executable: str = "", *, container: str | None = None
) -> GoProcess:
    return GoProcess(
        pid=IMPOSSIBLE + number,
        name=name,
        command=name,
        user="root",
        go_version="go1.27.3",
        build_mode="exe",
        container=container,
        supported=True,
        why_not="",
        executable=executable or f"/bin/{name}",
    )


def native(number: int, name: str, *, container: str | None = None) -> GoProcess:
    return replace(go_process(number, name, container=container), is_go=False, supported=False)


def too_old(number: int, name: str) -> GoProcess:
    return replace(go_process(number, name), supported=False, why_not="too old")


def among(*there: GoProcess, unseen: int = 0) -> Selection:
    """Selects from these processes."""

    def selected(
        names: Sequence[str] = (), containers: Sequence[str] = (), *, all_go: bool = False
    ) -> list[int]:
        survey = Survey(there, unseen)
        pids = find([], names, containers, all_go, lambda: survey)
        return [pid - IMPOSSIBLE for pid in pids]

    return selected


def test_pids_need_no_survey() -> None:
    assert find([7, 5, 7], [], [], False, lambda: pytest.fail("a survey")) == [7, 5]


def test_a_name_matches_the_whole_command_or_executable_name() -> None:
    found = among(
        go_process(1, "api"),
        go_process(2, "api-server"),
        go_process(3, "a-name-of-15-by", "/srv/a-name-of-15-bytes-and-more"),
        go_process(4, "main", "/srv/api"),
    )
    assert found(["api"]) == [1, 4]
    assert found(["api*"]) == [1, 2, 4]
    assert found(["a-name-of-15-bytes-and-more"]) == [3]
    assert found(["[bm]ain", "api-?erver"]) == [2, 4]


def test_a_name_with_brackets_matches_itself() -> None:
    found = among(go_process(1, "[api]"), go_process(2, "a"))
    assert found(["[api]"]) == [1, 2]


def test_names_are_case_sensitive() -> None:
    found = among(go_process(1, "API"), go_process(2, "api"))
    assert found(["a*"]) == [2]


def test_a_name_prefers_processes_that_can_be_profiled() -> None:
    found = among(native(1, "api"), too_old(2, "api"), go_process(3, "api"))
    assert found(["api"]) == [3]


def test_a_name_falls_back_to_unsupported_processes() -> None:
    found = among(native(1, "api"), too_old(2, "api"), native(3, "nginx"))
    assert found(["api"]) == [2]
    assert found(["nginx"]) == [3]


def test_pids_and_names_add_up() -> None:
    survey = Survey((go_process(1, "api"), go_process(2, "web")), 0)
    expected = [IMPOSSIBLE + 2, 9, IMPOSSIBLE + 1]
    assert find(expected[:2], ["api", "web"], [], False, lambda: survey) == expected


def test_all_go_selects_processes_that_can_be_profiled() -> None:
    found = among(go_process(1, "api"), native(2, "nginx"), too_old(3, "old"), go_process(4, "web"))
    assert found(all_go=True) == [1, 4]


def test_a_container_is_found_by_the_beginning_of_its_id() -> None:
    found = among(
        go_process(1, "api", container=ID),
        native(2, "sh", container=ID),
        go_process(3, "api", container=OTHER),
        go_process(4, "api"),
    )
    assert found(containers=[ID[:8]]) == [1]
    assert found(containers=[ID, OTHER]) == [1, 3]


def test_name_and_container_must_both_match() -> None:
    found = among(
        go_process(1, "api", container=ID),
        go_process(2, "web", container=ID),
        go_process(3, "api"),
    )
    assert found(["api"], [ID]) == [1]


def test_an_ambiguous_container_id_is_refused() -> None:
    found = among(go_process(1, "api", container=ID), go_process(2, "api", container=OTHER))
    with pytest.raises(NoSuchProcess, match=f"{ID[:12]}, {OTHER[:12]}. Give more characters"):
        found(containers=[ID[:6]])


def test_a_whole_container_name_may_be_a_prefix_of_another() -> None:
    found = among(
        go_process(1, "api", container="web-10"), go_process(2, "api", container="web-101")
    )
    assert found(containers=["web-10"]) == [1]


def test_an_unknown_container_matches_no_process() -> None:
    found = among(go_process(1, "api"))
    with pytest.raises(NoSuchProcess, match="in a container whose id begins with abcdef"):
        found(containers=["abcdef"])


@pytest.mark.machine
@pytest.mark.parametrize(
    ("names", "all_go", "words"),
    [(["api"], False, "no process called api"), ([], True, "no Go process that can be profiled")],
)
def test_a_name_without_a_match_is_an_error_with_a_way_out(
    names: list[str], all_go: bool, words: str
) -> None:
    found = among(native(1, "nginx"), too_old(2, "old"), unseen=3)
    with pytest.raises(NoSuchProcess) as raised:
        found(names, all_go=all_go)
    assert words in str(raised.value)
    assert "3 processes could not be read" in str(raised.value)
    assert str(raised.value).endswith("\n    ebpfprof list\n    ebpfprof list --all")


def test_ebpfprof_and_its_children_are_never_matched() -> None:
    with subprocess.Popen(["/bin/cat"], stdin=subprocess.PIPE) as child:
        ours = [
            go_process(pid - IMPOSSIBLE, "api") for pid in (os.getpid(), child.pid, os.getppid())
        ]
        assert among(*ours)(["api"]) == [os.getppid() - IMPOSSIBLE]
        child.communicate()


@pytest.mark.parametrize(("pid", "is_ours"), [(7, True), (5, True), (1, False), (8, False)])
def test_descendants_are_found_by_their_parents(pid: int, is_ours: bool) -> None:
    """8 and 9 are each other's parents: one of the pids was reused meanwhile."""
    parents = {7: 6, 6: 5, 5: 1, 1: 0, 8: 9, 9: 8}
    assert descends(pid, 5, parents.__getitem__) is is_ours


@pytest.mark.parametrize(("flags", "is_kernels"), [(0x0020_8040, True), (0x0040_0100, False)])
def test_a_kernel_thread_has_a_flag(flags: int, is_kernels: bool) -> None:
    stat = b"7 (a) b (c) S 0 0 0 0 -1 %d 0 0" % flags
    assert has_kernel_flag(fields_of_stat(stat)) is is_kernels


class Refusing:
    """May not read the first processes of the machine; all others have ended."""

    def begin(self) -> None:
        """A survey begins."""

    def answer(self, request: Any, fds: Sequence[int]) -> Frame:  # noqa: ANN401 - JSON
        pid, _started = request
        raise PermissionError if pid in FIRST else ProcessLookupError


def test_unreadable_processes_are_counted_without_kernel_threads() -> None:
    names = [path.read_text() for pid in FIRST if (path := Path(f"/proc/{pid}/comm")).exists()]
    unreadable = len(names) - names.count("kthreadd\n")  # a container has no such thread
    with ProcessTable(Refusing) as table:
        assert table.survey() == Survey((), unreadable)


@pytest.mark.parametrize("number", [1, 3])
def test_only_users_without_rights_are_advised_to_be_root(number: int) -> None:
    noun = "process" if number == 1 else "processes"
    start = f"{number} {noun} could not be read: "
    assert not_seen(number, []) == f"{start}the kernel refused it even to this user."
    those = "it belongs to another user" if number == 1 else "they belong to other users"
    assert not_seen(number, ["CAP_SYS_PTRACE"]) == f"{start}{those}. {way_out()}"
