"""The output of `ebpfprof list`."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import replace

import pytest
from rich.cells import cell_len

from ebpfprof.commands.list import (
    Load,
    chosen,
    notes,
    nothing,
    notices,
    render,
    to_json,
)
from ebpfprof.discovery.processes import GoProcess, Survey
from ebpfprof.profile.kind import Loader
from ebpfprof.profilers.registry import registered
from tests.unit.made_up_kinds import ALLOCS

ID = "4f1c0e6a" * 8

API = GoProcess(
    pid=71234,
    name="api",
    command="/srv/api --port 80",
    user="www",
    go_version="go1.27.3",
    build_mode="pie cgo",
    container=ID,
    supported=True,
    why_not="",
)
OLD = replace(
    API,
    pid=8,
    container=None,
    go_version="go1.16.1",
    supported=False,
    why_not="the program was built with go1.16.1",
)
NATIVE = replace(
    API,
    pid=9,
    name="nginx",
    command="",
    container=None,
    go_version=None,
    build_mode="",
    is_go=False,
    supported=False,
    why_not="not a Go program",
)


LOAD = Load(1.234, 12 << 20, 34)
LOADS = {API.pid: LOAD}


def lines_of(*there: GoProcess, names: Sequence[str] = (), show_all: bool = False) -> list[str]:
    """What the verb prints where there are these processes."""
    shown = chosen(Survey(there, 0), names, show_all=show_all)
    return [*render(shown, None, color=False, load=LOADS).splitlines(), *notes(shown)]


def test_each_process_has_a_line_and_each_refusal_its_reason() -> None:
    assert lines_of(OLD, replace(OLD, pid=10), API) == [
        "  PID  Name   CPU  Memory  Goroutines  User  Go      Build    Container     Profiles  "
        "Command",
        "    8  api      -       -           -  www   1.16.1  pie cgo                none      "
        "/srv/api --port 80",
        "   10  api      -       -           -  www   1.16.1  pie cgo                none      "
        "/srv/api --port 80",
        f"71234  api   123%  12 MiB          34  www   1.27.3  pie cgo  {ID[:12]}  all       "
        "/srv/api --port 80",
        "",
        "8, 10: the program was built with go1.16.1.",
    ]


def test_programs_that_are_not_go_need_the_option_all() -> None:
    assert "nginx" not in "".join(lines_of(API, NATIVE))
    lines = lines_of(API, NATIVE, show_all=True)
    (line,) = (line for line in lines if "nginx" in line)
    assert line.split() == ["9", "nginx", "-", "-", "-", "www", "-", "cpu", "[nginx]"]
    assert "CPU profile" in lines[-1]
    assert not any("9: " in line for line in lines)


def test_other_programs_have_every_kind_that_needs_no_go() -> None:
    with registered(replace(ALLOCS, loader=Loader("tests.nowhere", needs_go=False))):
        _, line, _, note = lines_of(NATIVE, show_all=True)
    assert line.endswith(" cpu,mallocs  [nginx]")
    assert note.startswith("Other programs can only have the CPU and allocation profiles: ")


def test_without_containers_the_table_has_no_container_column() -> None:
    assert "Container" not in lines_of(OLD)[0]


def test_names_filter_the_list() -> None:
    web = replace(API, pid=5, name="web")
    lines = lines_of(API, web, names=["w*", "nothing"])
    assert [line.split()[0] for line in lines] == ["PID", "5"]


def test_ebpfprof_is_not_in_its_list() -> None:
    survey = Survey((replace(API, pid=os.getpid()), API), 0)
    assert chosen(survey, [], show_all=True) == [API]


@pytest.mark.parametrize(
    ("names", "show_all", "expected"),
    [
        ((), False, "There is no Go process here."),
        ((), True, "There is no process here."),
        (("a\x1b[2J", "b"), False, "There is no Go process called a\\x1b[2J or b here."),
    ],
)
def test_an_empty_list_has_a_message(names: tuple[str, ...], show_all: bool, expected: str) -> None:
    assert nothing(names, show_all) == expected


def test_processes_that_the_list_can_not_have_are_reported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    unseen, inside = notices(Survey((API,), 3), ["CAP_SYS_PTRACE"], sees_all=False)
    assert unseen.startswith("3 processes could not be read: they belong to other users. Type:")
    assert "\n    sudo " in unseen
    assert inside.startswith("Only the processes of this container are visible.")
    assert list(notices(Survey((API,), 0), [], sees_all=True)) == []


def test_json_has_all_fields_unchanged() -> None:
    hostile = replace(API, command='/srv/"x" \x1b[31m日本', name="\x07")
    survey = Survey((OLD, hostile, NATIVE), 2)
    text = to_json(survey, survey.processes, LOADS)
    assert text.isascii()
    assert "\x1b" not in text
    read = json.loads(text)
    assert (read["unseen"], read["unanswered"]) == (2, [])
    assert [row["pid"] for row in read["processes"]] == [OLD.pid, API.pid, NATIVE.pid]
    old, api, native = read["processes"]
    assert api == {
        "pid": API.pid,
        "name": "\x07",
        "command": hostile.command,
        "executable": "",
        "user": "www",
        "go_version": "go1.27.3",
        "build_mode": "pie cgo",
        "container": ID,
        "pod": None,
        "is_go": True,
        "supported": True,
        "why_not": "",
        "is_unknown_version": False,
        "module": "",
        "module_version": "",
        "started_ns": 0,
        "cpu": 1.234,
        "memory_bytes": 12 << 20,
        "goroutines": 34,
    }
    assert (old["cpu"], old["memory_bytes"], old["goroutines"]) == (None, None, None)
    assert (old["supported"], old["why_not"]) == (False, OLD.why_not)
    assert (native["is_go"], native["go_version"]) == (False, None)


def test_an_empty_list_is_valid_json() -> None:
    empty = {"processes": [], "unseen": 0, "unanswered": []}
    assert json.loads(to_json(Survey((), 0), [], {})) == empty


HOSTILE = "\x1b[2J[bold red]x[/] \r\n\u202eevil\udcff日本語" * 20


@pytest.mark.parametrize("width", [None, 200, 100, 80, 60, 50, 40, 33])
@pytest.mark.parametrize("color", [False, True])
def test_no_process_can_break_the_table(width: int | None, color: bool) -> None:
    hostile = replace(API, command=HOSTILE, user=HOSTILE, go_version=HOSTILE[:20])
    lines = render([hostile, API, NATIVE], width, color=color, load=LOADS).splitlines()
    assert len(lines) == 4
    assert all("\u202e" not in line and "\r" not in line for line in lines)
    if not color:
        assert all(line.isprintable() for line in lines)
        assert all(width is None or cell_len(line) <= width for line in lines)
    # In all widths the pid and the name can be read.
    assert str(API.pid) in lines[2]
    assert f" {API.name} " in lines[2]


def test_columns_give_way_to_the_command() -> None:
    wide, narrow = (render([API], width, color=False, load=LOADS) for width in (130, 50))
    assert "Container" in wide
    assert "/srv/api --port 80" in wide
    assert "Container" not in narrow
    assert "/srv/api --po" in narrow


def test_the_name_is_cut_last() -> None:
    worker = replace(API, name="price-calculato", command="/opt/a/very/long/path/price-calculator")
    narrow = render([worker], 40, color=False)
    assert "price-calculato" in narrow
    assert "/opt" not in narrow
    assert "/opt/a/very/" in render([worker], 70, color=False)


@pytest.mark.parametrize("width", [1, 5, 12, 20])
def test_a_terminal_may_be_narrower_than_any_table(width: int) -> None:
    assert render([API, OLD], width, color=False)
