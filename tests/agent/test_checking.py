"""What `ebpfprof agent --check` prints of settings."""

from __future__ import annotations

import pytest

from ebpfprof.agent.checking import as_toml
from ebpfprof.agent.kubernetes_settings import KubernetesSettings
from ebpfprof.agent.settings import Settings
from ebpfprof.agent.settings_file import parsed

FULL = """\
kinds = ["mutex", "wall"]
window = "10s"
max_overhead = 0.5
max_memory = "1GiB"
min_age = 2.5
environment = ["APP"]
listen = ""
[options]
hz = 19
[ring]
enabled = false
max_age = "1d"
[kubernetes]
cri_socket = "/run/containerd/containerd.sock"
api_server = "https://10.0.0.1:6443/base/"
[[sinks]]
type = "folder"
path = "/srv/out"
[[sinks]]
type = "pyroscope"
name = "far"
url = "https://pyroscope.example/base/"
tenant = "shop"
timeout = "3s"
[[rules]]
source = ["__meta_process_name", "__meta_node"]
regex = "(.*);(.*)"
target = "service"
replacement = "$1-$2"
[[rules]]
action = "labeldrop"
regex = "x"
"""


def test_what_check_prints_is_a_file_that_says_the_same() -> None:
    found = parsed(FULL, "a.toml")
    assert found.kinds == ("mutex", "wall")
    assert (found.window, found.min_age, found.max_memory) == (10.0, 2.5, 1 << 30)
    assert (found.listen, dict(found.options)) == (None, {"hz": 19})
    assert (found.ring.enabled, found.ring.max_age) == (False, 86400)
    assert found.kubernetes == KubernetesSettings(
        "/run/containerd/containerd.sock", "https://10.0.0.1:6443/base"
    )
    assert [sink.name for sink in found.sinks] == ["folder", "far"]
    assert [each.queue_age for each in found.sinks] == [86400, 3000]
    assert found.sinks[1].url == "https://pyroscope.example/base"
    assert [rule.action for rule in found.rules] == ["replace", "labeldrop"]
    assert parsed(as_toml(found), "b.toml") == found
    assert parsed(as_toml(Settings()), "b.toml") == Settings()


@pytest.mark.parametrize(
    "text",
    [
        "max_node_overhead = 1.23456789",
        "max_overhead = 1e-7",
        'min_age = "12.3456789s"',
        '[ring]\nmax_age = "12345678s"',
        "node = 'größe \U0001f600 \"x\" \\ '",
        'host_root = "/a\\u007f\\u202e\\n\\b"',
        "[[rules]]\ntarget = 'a'\nregex = '[\U0001f600\\d]+'",
    ],
)
def test_check_prints_odd_values_so_that_they_can_be_read_again(text: str) -> None:
    found = parsed(text, "a.toml")
    shown = as_toml(found)
    assert parsed(shown, "b.toml") == found
    assert all(line.isprintable() for line in shown.splitlines())
