"""Alloy, Parca and `go tool pprof` as clients: their requests, and their use of the answers."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
from pathlib import Path
from time import monotonic, sleep

import pytest

from ebpfprof.profile.model import Kind, Profile
from tests.builds import in_full
from tests.recorder import event_count
from tests.server.go_pair import Pair
from tests.server.serving import DEADLINE_S, ask
from tests.toolchains import toolchain


def by_addresses(profile: Profile) -> dict[tuple[object, ...], tuple[int, ...]]:
    """As Alloy tells samples apart, which makes the differences itself (its fastdelta)."""
    return {
        (tuple(at.address for at in sample.locations), sample.labels): tuple(sample.values)
        for sample in profile.samples
    }


@pytest.mark.parametrize("kind", ["block", *in_full("mutex")])
def test_alloy_makes_a_difference_of_two_scrapes(pair: Pair, kind: Kind) -> None:
    """Without `seconds`: sums that never decrease, no duration, a time that moves."""
    path = f"/proc/{pair.target.pid}/debug/pprof/{kind}"  # __profile_path_prefix__
    first = second = pair.ours.get(path).profile(kind)
    before = by_addresses(first)
    assert len(before) == len(first.samples)
    until = monotonic() + DEADLINE_S
    while event_count(second) == event_count(first):
        assert monotonic() < until, "nothing happens"
        second = pair.ours.get(path).profile(kind)
    assert (first.duration_ns, second.duration_ns) == (0, 0)
    assert first.time_ns < second.time_ns
    after = by_addresses(second)
    for key, values in before.items():
        assert all(now >= then for now, then in zip(after[key], values, strict=True))


@pytest.mark.parametrize("kind", ["block", "mutex"])
def test_parca_and_godeltaprof_are_given_differences(pair: Pair, kind: Kind) -> None:
    """Those of Parca have `seconds` (delta: true); Alloy's others ask for delta_block."""
    for name in (f"{kind}?seconds=1", f"delta_{kind}"):
        profile = pair.ours.get(f"/proc/{pair.target.pid}/debug/pprof/{name}").profile(kind)
        assert profile.duration_ns > 0
    sums = pair.ours.get(f"/proc/{pair.target.pid}/debug/pprof/{kind}").profile(kind)
    again = pair.ours.get(f"/proc/{pair.target.pid}/debug/pprof/delta_{kind}").profile(kind)
    assert again.duration_ns > 0
    assert event_count(again) < event_count(sums)


@pytest.mark.parametrize(
    ("arguments", "path", "shown"),
    [
        ((), "block?seconds=1", "main.holdLock"),
        *in_full((("-seconds=1",), "mutex", "sync.(*Mutex).Unlock")),
        ((), "block", "runtime.chanrecv"),
        (("-seconds=1",), "profile", "Type: cpu"),
        ((), "delta_mutex", "main.holdLock"),
    ],
)
def test_go_tool_pprof_fetches_profiles(
    pair: Pair, arguments: tuple[str, ...], path: str, shown: str, tmp_path: Path
) -> None:
    url = f"http://{pair.ours.address}/proc/{pair.target.pid}/debug/pprof/{path}"
    env = {"PPROF_TMPDIR": str(tmp_path), "HOME": str(tmp_path)}
    found = toolchain(pair.minor).go("tool", "pprof", "-top", *arguments, url, env=env)
    assert shown in found
    assert "File: httppprof" in found


def is_listening(address: str) -> bool:
    host, _, port = address.rpartition(":")
    with socket.socket() as probe:
        return probe.connect_ex((host, int(port))) == 0


def test_go_tool_pprof_shows_a_profile_in_the_browser(pair: Pair, tmp_path: Path) -> None:
    go = toolchain(pair.minor)
    url = f"http://{pair.ours.address}/debug/pprof/block?seconds=1"
    arguments = ["tool", "pprof", "-http=127.0.0.1:", "-no_browser", url]
    with subprocess.Popen(
        [str(go.goroot / "bin" / "go"), *arguments],
        # From Go 1.25 on, `go tool` builds pprof, and is killed before it removes its folder.
        env={
            **go.environment(),
            **dict.fromkeys(("GOTMPDIR", "PPROF_TMPDIR", "HOME"), str(tmp_path)),
        },
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,  # `go` has pprof for a child
    ) as shown:
        assert shown.stderr is not None
        try:
            lines, match = [], None
            for line in shown.stderr:
                lines.append(line)
                if match := re.search(r"Serving web UI on http://(\S+)", line):
                    break
            assert match, lines
            # It says so a moment before it listens.
            until = monotonic() + DEADLINE_S
            while not is_listening(match[1]):
                assert monotonic() < until
                sleep(0.05)
            assert b"main.holdLock" in ask(match[1], "/ui/top").body
        finally:
            os.killpg(shown.pid, signal.SIGKILL)


def test_go_tool_pprof_prints_our_errors(pair: Pair, tmp_path: Path) -> None:
    go = toolchain(pair.minor)
    command = [str(go.goroot / "bin" / "go"), "tool", "pprof", "-top"]
    env = {**go.environment(), "PPROF_TMPDIR": str(tmp_path), "HOME": str(tmp_path)}
    for path, sentence in (
        ("debug/pprof/nonsense", "Unknown profile"),
        ("proc/1/debug/pprof/block", "Process 1 is not served here"),
    ):
        url = f"http://{pair.ours.address}/{path}"
        done = subprocess.run([*command, url], env=env, capture_output=True, text=True)
        assert done.returncode != 0
        assert sentence in done.stderr
