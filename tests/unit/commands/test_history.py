"""`ebpfprof history`: what it prints and writes of a ring with known contents."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from ebpfprof.commands.cli import cli
from ebpfprof.errors import BadConfig, EbpfprofError
from ebpfprof.export import pprof
from ebpfprof.profile.delta import totals
from ebpfprof.profile.service import ServiceIdentity
from tests.unit.ring.made_up import (
    API,
    NS,
    START_S,
    WINDOW_S,
    Clock,
    boottime_of,
    goroutines_of,
    profile_of,
    ring,
    window,
)
from tests.unit.ring.test_contents import estimated

# START_S is 14:13:20 UTC. Minutes 0 to 10 and 15 to 30 are recorded.
NOW_S = START_S + 40 * WINDOW_S


@dataclass(frozen=True)
class Answer:
    code: int
    out: str
    err: str


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """shop ran all the time, api from minute 2 to 6; old, of the same pod as shop, did not wait."""
    found = tmp_path_factory.mktemp("history") / "ring"
    clock = Clock()
    for first, last in ((0, 10), (15, 30)):
        clock.now_s = START_S + first * WINDOW_S
        with ring(found, clock) as writer:
            for minute in range(first, last):
                at_s = START_S + minute * WINDOW_S
                clock.now_s = at_s + WINDOW_S
                waits = profile_of(3 if minute < 15 else 9, NS, at_s)
                assert writer.write(window(at_s, [waits, goroutines_of(minute, at_s)]))
                if 2 <= minute < 6:
                    began_s = START_S + 2 * WINDOW_S
                    rare = [estimated(profile_of(1, NS, at_s))]
                    assert writer.write(window(at_s, rare, identity=API, pid=7, began_s=began_s))
                if minute == 6:
                    writer.note_ended(7, boottime_of(START_S + 2 * WINDOW_S), at_s + 4)
                if minute == 20:
                    old = ServiceIdentity("old", pod="shop-7")
                    assert writer.write(window(at_s, [profile_of(0, 0, at_s)], identity=old, pid=9))
                    writer.note_unrecorded(
                        API, 8, boottime_of(at_s), "api", at_s, at_s + 60, "no budget was left"
                    )
    return found


@pytest.fixture(autouse=True)
def _now(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "UTC0")
    time.tzset()
    monkeypatch.setattr(time, "time", lambda: NOW_S)
    yield
    monkeypatch.undo()
    time.tzset()


def ask(folder: Path, *arguments: str) -> Answer:
    """What it prints; raises the errors that main() would print."""
    done = CliRunner().invoke(cli, ["history", *arguments, "--path", str(folder)])
    if isinstance(done.exception, EbpfprofError):
        raise done.exception
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exc_info
    return Answer(done.exit_code, done.stdout, done.stderr)


def test_the_list_has_the_dead_and_says_what_was_not_watched(folder: Path) -> None:
    output = ask(folder, "--since", "14:13:20", "--until", "14:43:20").out.splitlines()
    assert output == [
        "2026-09-21 14:13:20 to 14:43:20, UTC",
        "Not watched: 14:23:20 to 14:28:20: the agent did not run.",
        "",
        "PID         Time  Watched   Block  Goroutine  Service",
        "  7  14:15-14:19     98 %  ~4.0 s          -  api, ended",
        "  8  14:33-14:43      0 %       -          -  api",
        "  9  14:13-14:43    3.3 %    0 ns          -  old",
        " 42  14:13-14:43     83 %  25.0 s         29  prod/shop",
        "~ estimated; --name NAME shows the errors.",
    ]


def test_of_a_service_it_adds_up_what_was_recorded(folder: Path) -> None:
    at = ("--since", "14:13:20", "--until", "14:23:20", "--name", "shop")
    hidden = ask(folder, *at).out
    assert "All that was recorded is idle.\nHidden as idle: 10.0 s in 30 waits" in hidden
    assert "--show-idle shows them" in hidden
    output = ask(folder, *at, "--show-idle").out
    assert output.startswith(
        "prod/shop, 2026-09-21 14:13:20 to 14:23:20, UTC\n"
        "Watched: 10.0 min of 10.0 min (100 %); 1 process: 42.\n\n"
        "Only idle waits were recorded.\nWaits of prod/shop in 10.0 min:\n"
    )
    assert "10.0 s  100.0%     30  333 ms  chan receive  main.work" in output
    assert "Goroutines of prod/shop at 14:23:20:" in output


def test_two_times_are_distinguished(folder: Path) -> None:
    first = ask(folder, "--at", "14:18:20", "--name", "shop", "--profile", "block").out
    second = ask(folder, "--at", "14:35", "--name", "shop", "--profile", "block").out
    assert " 30 " in first
    assert " 99 " in second  # eleven minutes lie in that time, wholly or in part


def test_a_time_that_ends_within_windows_says_how_far_they_reach(folder: Path) -> None:
    output = ask(folder, "--since", "14:14", "--until", "14:16", "--name", "shop").out
    assert "Its windows are complete and span 14:13:20 to 14:16:20." in output


def test_an_estimate_says_that_it_is_one(folder: Path) -> None:
    output = ask(folder, "--since", "14:13", "--until", "14:23", "--name", "api").out
    assert "7 (ended 14:19:24)" in output
    assert "Did not run: 14:19:24 to 14:23:00: the agent saw no such process." in output
    assert " on delays (one standard error)" in output
    assert "sampled one wait in eight, 10 % of the time, and scaled" in output


def test_why_a_process_was_not_recorded_is_reported(folder: Path) -> None:
    with pytest.raises(EbpfprofError) as found:
        ask(folder, "--since", "14:33:20", "--until", "14:34:20", "--name", "api")
    assert "Nothing was recorded of api" in str(found.value)
    assert "not recorded: no budget was left" in str(found.value)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("--name", "sh*"), "30"),
        (("--name", "shop", "--name", "api"), "34"),
        (("--namespace", "prod"), "30"),
        (("--pod", "shop-?", "--name", "shop"), "30"),
        (("--pid", "42"), "30"),
    ],
)
def test_processes_are_chosen(folder: Path, arguments: tuple[str, ...], expected: str) -> None:
    found = ask(
        folder, *("--since", "14:13:20", "--until", "14:23:20", "--profile", "block"), *arguments
    )
    assert f" {expected} " in found.out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ("--since", "14:23:30", "--until", "14:28", "--name", "shop"),
            "Nothing was recorded of shop from 2026-09-21 14:23:30 to 14:28:00, UTC: the agent did "
            "not run. Recorded times: 2026-09-21 14:13:20 to 14:43:20, UTC.",
        ),
        (
            ("--since", "14:15", "--until", "14:16", "--name", "nope"),
            "the agent ran all that time, but no such process. Recorded in that time: api and "
            "prod/",
        ),
        (
            ("--since", "14:22", "--until", "14:25", "--name", "nope"),
            "no such process ran while the agent ran; for 1.67 min of that time, the agent did not",
        ),
        (
            ("--since", "14:15", "--until", "14:16", "--name", "shop", "--profile", "heap"),
            "No heap profile of prod/shop was recorded from",
        ),
    ],
)
def test_where_there_is_nothing_the_reason_is_reported(
    folder: Path, arguments: tuple[str, ...], message: str
) -> None:
    with pytest.raises(EbpfprofError) as found:
        ask(folder, *arguments)
    assert message in str(found.value)


def test_a_comparison_is_by_the_time_that_was_watched(folder: Path) -> None:
    """A third of each minute's count before; the time before was watched for half as long."""
    output = ask(
        folder,
        *("--since", "14:28:20", "--until", "14:38:20", "--name", "shop"),
        *("--compare", "10m", "--profile", "block", "--show-idle"),
    ).out
    assert "Before: prod/shop, 2026-09-21 14:18:20 to 14:28:20, UTC" in output
    assert "Not watched: 14:23:20 to 14:28:20: the agent did not run." in output
    assert "5.00 s before, 5.00 s after" in output
    assert "5.00 min before, 10.0 min after. Values after are scaled to 5.00 min." in output


def test_a_comparison_with_a_time_finds_what_grew(folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "change.json"
    ask(
        folder,
        *("--since", "14:33:20", "--until", "14:38:20", "--name", "shop"),
        *("--compare-with", "14:13:20", "--profile", "block", "-o", str(path)),
    )
    assert path.stat().st_size > 100
    output = ask(
        folder,
        *("--since", "14:33:20", "--until", "14:38:20", "--name", "shop"),
        *("--compare-with", "14:13:20", "--profile", "goroutine"),
    ).out
    assert "4 before, 24 after" in output
    assert "Both show the last recorded moment" in output


def test_files_of_all_kinds_are_written_here_under_names_of_their_time(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    ask(folder, "--since", "14:13:20", "--until", "14:23:20", "--name", "shop", "-f", "pprof")
    written = sorted(each.name for each in tmp_path.iterdir())
    assert written == [
        "prod_shop-20260921-141320.block.pb.gz",
        "prod_shop-20260921-141320.goroutine.pb.gz",
    ]
    profile = pprof.decode((tmp_path / written[0]).read_bytes())
    assert totals(profile) == [30, 10 * NS]
    assert profile.duration_ns == 600 * NS


@pytest.mark.parametrize("name", ["x.html", "x.folded", "x.json", "x.txt", "x.speedscope.json"])
def test_each_format_is_written(folder: Path, tmp_path: Path, name: str) -> None:
    at = ("--at", "14:18", "--name", "shop", "--profile", "block", "--show-idle")
    ask(folder, *at, "-o", str(tmp_path / name))
    assert b"main.work" in (tmp_path / name).read_bytes()


def test_json_has_all_for_programs(folder: Path) -> None:
    found: dict[str, Any] = json.loads(
        ask(folder, "--since", "14:13:20", "--until", "14:28:20", "--json").out
    )
    assert found["from"] == "2026-09-21T14:13:20+00:00"
    assert found["not_watched"] == [
        {
            "from": "2026-09-21T14:23:20+00:00",
            "to": "2026-09-21T14:28:20+00:00",
            "reason": "the agent did not run",
        }
    ]
    api, shop = found["processes"]
    assert (api["service"], api["ended"]) == ("api", "2026-09-21T14:19:24+00:00")
    assert (shop["pod"], shop["labels"], shop["watched_seconds"]) == (
        "shop-7",
        {"team": "checkout"},
        600.0,
    )
    assert shop["profiles"]["block"]["totals"][0] == {
        "type": "contentions",
        "unit": "count",
        "value": 30,
    }
    assert shop["profiles"]["goroutine"]["totals"][0]["value"] == 9
    for path in shop["profiles"]["block"]["files"]:
        assert (folder / path).is_file()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--since", "soon"), "'soon' is not a time"),
        (("--at", "03:00", "--since", "02:00"), "--at replaces --since and --until"),
        (("--since", "1h", "--until", "2h"), "before it begins"),
        (("--compare", "1h"), "Choose a service: --name NAME"),
        (("-o", "x.html"), "Choose a service: --name NAME"),
        (("--name", "x", "--compare", "1h", "--compare-with", "3:00"), "exclude each other"),
        (("--name", "x", "--json", "-f", "html"), "--json prints the list"),
        (("--name", "x", "--compare", "1h", "-f", "speedscope"), "can't be written as speedscope"),
        (("--name", "x", "--hide-idle", "-f", "pprof"), "always has all samples"),
        (("--name", ""), '--name must be a name, not ""'),
        (("--since", "14:14", "--name", "shop", "-o", "-"), "standard output takes one profile"),
        (("--since", "14:14", "--name", "shop", "-o", "x.svg"), "no format has this ending"),
        (("--profile", "blok"), "Did you mean block?"),
    ],
)
def test_what_makes_no_sense_is_a_usage_error(
    folder: Path, arguments: tuple[str, ...], message: str
) -> None:
    found = ask(folder, *arguments)
    assert found.code == 2
    assert message in " ".join(found.err.split())


def test_the_folder_comes_from_the_settings_of_the_agent(folder: Path, tmp_path: Path) -> None:
    settings = tmp_path / "agent.toml"
    settings.write_text(f'[ring]\npath = "{folder}"\n')
    arguments = ["history", "--since", "14:13", "--until", "14:23"]
    found = CliRunner().invoke(cli, [*arguments, "--config", str(settings)])
    assert found.exit_code == 0
    assert found.stdout == ask(folder, *arguments[1:]).out
    both = CliRunner().invoke(cli, [*arguments, "--config", str(settings), "--path", str(folder)])
    assert both.exit_code == 2
    assert "choose one" in both.stderr
    settings.write_text("[ring]\npath = 7\n")
    wrong = CliRunner().invoke(cli, [*arguments, "--config", str(settings)])
    assert isinstance(wrong.exception, BadConfig)
