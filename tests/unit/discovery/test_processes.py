"""Selecting processes by pid, name and container."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from ebpfprof.discovery import processes
from ebpfprof.discovery.executables import Executable, Executables
from ebpfprof.discovery.processes import GoProcess, ProcessTable, Survey, find
from ebpfprof.errors import NoSuchProcess

Surveyed = Callable[..., None]
ID, OTHER = "4f1c0e6a" * 8, "4f1c0eff" * 8
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


@pytest.fixture
def surveyed(monkeypatch: pytest.MonkeyPatch) -> Surveyed:
    """Let these be the processes there are."""

    def survey(*there: GoProcess, unseen: int = 0) -> None:
        monkeypatch.setattr(ProcessTable, "survey", lambda _: Survey(there, unseen))

    return survey


def survey() -> Survey:
    with ProcessTable() as table:
        return table.survey()


def found(
    names: Sequence[str] = (), containers: Sequence[str] = (), *, all_go: bool = False
) -> list[int]:
    return [pid - IMPOSSIBLE for pid in find([], names, containers, all_go)]


def test_pids_need_no_survey(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(ProcessTable, "survey")
    assert find([7, 5, 7], [], [], False) == [7, 5]


def test_a_name_matches_the_whole_command_or_executable_name(surveyed: Surveyed) -> None:
    surveyed(
        go_process(1, "api"),
        go_process(2, "api-server"),
        go_process(3, "a-name-of-15-by", "/srv/a-name-of-15-bytes-and-more"),
        go_process(4, "main", "/srv/api"),
    )
    assert found(["api"]) == [1, 4]
    assert found(["api*"]) == [1, 2, 4]
    assert found(["a-name-of-15-bytes-and-more"]) == [3]
    assert found(["[bm]ain", "api-?erver"]) == [2, 4]


def test_a_name_with_brackets_matches_itself(surveyed: Surveyed) -> None:
    surveyed(go_process(1, "[api]"), go_process(2, "a"))
    assert found(["[api]"]) == [1, 2]


def test_names_are_case_sensitive(surveyed: Surveyed) -> None:
    surveyed(go_process(1, "API"), go_process(2, "api"))
    assert found(["a*"]) == [2]


def test_a_name_prefers_processes_that_can_be_profiled(surveyed: Surveyed) -> None:
    surveyed(native(1, "api"), too_old(2, "api"), go_process(3, "api"))
    assert found(["api"]) == [3]


def test_a_name_falls_back_to_unsupported_processes(surveyed: Surveyed) -> None:
    surveyed(native(1, "api"), too_old(2, "api"), native(3, "nginx"))
    assert found(["api"]) == [2]
    assert found(["nginx"]) == [3]


def test_pids_and_names_add_up(surveyed: Surveyed) -> None:
    surveyed(go_process(1, "api"), go_process(2, "web"))
    assert find([IMPOSSIBLE + 2, 9], ["api", "web"], [], False) == [
        IMPOSSIBLE + 2,
        9,
        IMPOSSIBLE + 1,
    ]


def test_all_go_selects_processes_that_can_be_profiled(surveyed: Surveyed) -> None:
    surveyed(go_process(1, "api"), native(2, "nginx"), too_old(3, "old"), go_process(4, "web"))
    assert found(all_go=True) == [1, 4]


def test_a_container_is_found_by_the_beginning_of_its_id(surveyed: Surveyed) -> None:
    surveyed(
        go_process(1, "api", container=ID),
        native(2, "sh", container=ID),
        go_process(3, "api", container=OTHER),
        go_process(4, "api"),
    )
    assert found(containers=[ID[:8]]) == [1]
    assert found(containers=[ID, OTHER]) == [1, 3]


def test_name_and_container_must_both_match(surveyed: Surveyed) -> None:
    surveyed(
        go_process(1, "api", container=ID),
        go_process(2, "web", container=ID),
        go_process(3, "api"),
    )
    assert found(["api"], [ID]) == [1]


def test_an_ambiguous_container_id_is_refused(surveyed: Surveyed) -> None:
    surveyed(go_process(1, "api", container=ID), go_process(2, "api", container=OTHER))
    with pytest.raises(NoSuchProcess, match=f"{ID[:12]}, {OTHER[:12]}. Give more characters"):
        found(containers=[ID[:6]])


def test_a_whole_container_name_may_be_a_prefix_of_another(surveyed: Surveyed) -> None:
    surveyed(go_process(1, "api", container="web-10"), go_process(2, "api", container="web-101"))
    assert found(containers=["web-10"]) == [1]


def test_an_unknown_container_matches_no_process(surveyed: Surveyed) -> None:
    surveyed(go_process(1, "api"))
    with pytest.raises(NoSuchProcess, match="in a container whose id begins with abcdef"):
        found(containers=["abcdef"])


@pytest.mark.machine
@pytest.mark.parametrize(
    ("names", "all_go", "words"),
    [(["api"], False, "no process called api"), ([], True, "no Go process that can be profiled")],
)
def test_a_name_without_a_match_is_an_error_with_a_way_out(
    names: list[str], all_go: bool, words: str, surveyed: Surveyed
) -> None:
    surveyed(native(1, "nginx"), too_old(2, "old"), unseen=3)
    with pytest.raises(NoSuchProcess) as raised:
        found(names, all_go=all_go)
    assert words in str(raised.value)
    assert "3 processes could not be read" in str(raised.value)
    assert str(raised.value).endswith("\n    ebpfprof list\n    ebpfprof list --all")


def test_ebpfprof_and_its_children_are_never_matched(surveyed: Surveyed) -> None:
    with subprocess.Popen(["/bin/cat"], stdin=subprocess.PIPE) as child:
        ours = [
            go_process(pid - IMPOSSIBLE, "api") for pid in (os.getpid(), child.pid, os.getppid())
        ]
        surveyed(*ours)
        assert find([], ["api"], [], False) == [os.getppid()]
        child.communicate()


def test_a_cycle_of_parents_ends_the_search(
    monkeypatch: pytest.MonkeyPatch, surveyed: Surveyed
) -> None:
    """Pids are read one after the other, and reused meanwhile."""
    monkeypatch.setattr(processes, "_stat_fields", lambda pid: [b"S", b"%d" % (pid ^ 1)])
    surveyed(go_process(2, "api"))
    assert found(["api"]) == [2]


STAT = b"%d (a) b (c) S 0 0 0 0 -1 %d 0 0"
KERNEL_THREAD, ORDINARY = 0x0020_8040, 0x0040_0100


def test_unreadable_processes_are_counted_without_kernel_threads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    flags = {2: KERNEL_THREAD, 7: ORDINARY, 9: ORDINARY}

    def read(path: str) -> bytes:
        pid = int(path.split("/")[2])
        if pid not in flags:
            raise ProcessLookupError(path)
        return STAT % (pid, flags[pid])

    def of(table: Executables, pid: int) -> Executable:
        raise FileNotFoundError if pid == 11 else PermissionError

    monkeypatch.setattr(processes, "_pids", lambda: [2, 7, 8, 9, 11])  # 8 has ended, 11 a zombie
    monkeypatch.setattr(processes, "_read", read)
    monkeypatch.setattr(Executables, "of", of)
    assert survey() == Survey((), unseen=2)


def test_a_process_that_ends_during_the_survey_is_left_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def read(path: str) -> bytes:
        raise ProcessLookupError(path)

    monkeypatch.setattr(processes, "_pids", lambda: [os.getpid()])
    assert [process.pid for process in survey().processes] == [os.getpid()]
    monkeypatch.setattr(processes, "_read", read)
    assert survey() == Survey((), unseen=0)


@pytest.mark.parametrize("number", [1, 3])
def test_only_users_without_rights_are_advised_to_be_root(
    number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    noun = "process" if number == 1 else "processes"
    monkeypatch.setattr(processes, "missing_capabilities", list)
    output = processes.not_seen(number)
    assert output.startswith(f"{number} {noun} could not be read: the kernel ")
    monkeypatch.setattr(processes, "missing_capabilities", lambda: ["CAP_SYS_PTRACE"])
    monkeypatch.setattr(processes, "way_out", lambda: "Use sudo.")
    those = "it belongs to another user" if number == 1 else "they belong to other users"
    assert processes.not_seen(number).endswith(f": {those}. Use sudo.")
    # The rights that there were at the beginning count, not those that are left.
    assert processes.not_seen(number, []) == output
