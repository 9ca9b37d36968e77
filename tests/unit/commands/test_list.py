"""The output of `ebpfprof list`."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace

import pytest
from click.testing import CliRunner, Result
from rich.cells import cell_len

from ebpfprof.commands import list as list_verb
from ebpfprof.commands.cli import cli
from ebpfprof.commands.list import Load, render
from ebpfprof.discovery.processes import GoProcess, ProcessTable, Survey
from ebpfprof.profile.kind import Loader
from ebpfprof.profilers import registry
from ebpfprof.recording import drop_privileges
from ebpfprof.system import pid_namespace
from tests.unit.made_up_kinds import ALLOCS

Listing = Callable[..., Result]
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


@pytest.fixture
def listing(monkeypatch: pytest.MonkeyPatch) -> Listing:
    """Run the verb where there are these processes."""

    def run(*arguments: str, there: tuple[GoProcess, ...] = (), unseen: int = 0) -> Result:
        monkeypatch.setattr(ProcessTable, "survey", lambda _: Survey(there, unseen))
        monkeypatch.setattr(pid_namespace, "sees_whole_machine", lambda: True)
        # This process has other tests to run (tests/conftest.py).
        monkeypatch.setattr(drop_privileges, "give_up_recording_rights", lambda: None)
        monkeypatch.setattr(list_verb, "loads_of", lambda _: {API.pid: LOAD})
        # As it is called: click keeps the first way in which a command asks for help.
        result = CliRunner().invoke(cli, ["list", *arguments])
        assert result.exit_code == 0, result.output
        return result

    return run


def test_each_process_has_a_line_and_each_refusal_its_reason(listing: Listing) -> None:
    result = listing(there=(OLD, replace(OLD, pid=10), API))
    assert result.stdout.splitlines() == [
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
    assert result.stderr == ""


def test_programs_that_are_not_go_need_the_option_all(listing: Listing) -> None:
    assert "nginx" not in listing(there=(API, NATIVE)).stdout
    result = listing("--all", there=(API, NATIVE))
    (line,) = (line for line in result.stdout.splitlines() if "nginx" in line)
    assert line.split() == ["9", "nginx", "-", "-", "-", "www", "-", "cpu", "[nginx]"]
    assert "CPU profile" in result.stdout
    assert "9: " not in result.stdout


@pytest.mark.usefixtures("made_up")
def test_other_programs_have_every_kind_that_needs_no_go(
    listing: Listing, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(
        registry._kinds, "mallocs", replace(ALLOCS, loader=Loader("tests.nowhere", needs_go=False))
    )
    shown = listing("--all", there=(NATIVE,)).stdout
    assert " cpu,mallocs  [nginx]\n" in shown
    assert "Other programs can only have the CPU and allocation profiles: " in shown


def test_without_containers_the_table_has_no_container_column(listing: Listing) -> None:
    assert "Container" not in listing(there=(OLD,)).stdout


def test_names_filter_the_list(listing: Listing) -> None:
    web = replace(API, pid=5, name="web")
    lines = listing("-n", "w*", "--name", "nothing", there=(API, web)).stdout.splitlines()
    assert [line.split()[0] for line in lines] == ["PID", "5"]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ((), "There is no Go process here."),
        (("--all",), "There is no process here."),
        (("-n", "a\x1b[2J", "-n", "b"), "There is no Go process called a\\x1b[2J or b here."),
    ],
)
def test_an_empty_list_has_a_message_and_no_error(
    arguments: tuple[str, ...], expected: str, listing: Listing
) -> None:
    assert listing(*arguments, there=()).stdout == f"{expected}\n"


def test_unseen_processes_are_reported_on_stderr(
    listing: Listing, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "ebpfprof.privileges.checks.missing_capabilities", lambda: ["CAP_SYS_PTRACE"]
    )
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    result = listing(there=(API,), unseen=3)
    assert "3 processes could not be read: they belong to other users. Type:" in result.stderr
    assert "\n    sudo " in result.stderr
    assert "sudo" in result.stderr
    assert "sudo" not in result.stdout


def test_json_has_all_fields_unchanged(listing: Listing) -> None:
    hostile = replace(API, command='/srv/"x" \x1b[31m日本', name="\x07")
    result = listing("--json", "--all", there=(OLD, hostile, NATIVE), unseen=2)
    assert result.stdout.isascii()
    assert "\x1b" not in result.stdout
    read = json.loads(result.stdout)
    assert read["unseen"] == 2
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


def test_an_empty_list_is_valid_json(listing: Listing) -> None:
    assert json.loads(listing("--json").stdout) == {"processes": [], "unseen": 0, "unanswered": []}


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
