"""The agent's file: each key that is wrong in each way gets a sentence with its line."""

from __future__ import annotations

import json
import os
from dataclasses import fields
from pathlib import Path

import pytest

from ebpfprof.agent.kubernetes_settings import KubernetesSettings
from ebpfprof.agent.rules import Rule
from ebpfprof.agent.settings import RingSettings, Settings, SinkSettings
from ebpfprof.agent.settings_file import load, parsed
from ebpfprof.errors import BadConfig
from ebpfprof.settings.setting import Setting, settings_of
from ebpfprof.settings.values import (
    ListValue,
    NumberValue,
    PathValue,
    SizeValue,
    SwitchValue,
    TimeValue,
    UrlValue,
    WordValue,
)

KINDS = "block, mutex, wakers, runqueue, cpu, wall, goroutine, heap, allocs, threads, threadcreate"
RULE_HEAD = '[[rules]]\naction = "drop"\nsource = "__meta_process_name"\n'
SINK_HEAD = '[[sinks]]\ntype = "folder"\n'
REMOTE_HEAD = '[[sinks]]\ntype = "otlp"\nurl = "http://localhost:4318/"\n'
WRONG = [
    ('kinds = "block"', 'a.toml:1: kinds must be a list of kinds of profiles, not "block".'),
    (
        'kinds = ["blok"]',
        f"a.toml:1: kinds is a list of kinds of profiles: each item must be one of {KINDS}, "
        'not "blok". Did you mean block?',
    ),
    ('kinds = ["cpu", "cpu"]', 'a.toml:1: kinds has "cpu" twice.'),
    (
        "kinds = []",
        "a.toml:1: kinds must be a list of kinds of profiles with at least one item, not [].",
    ),
    ("window = 0.5", 'a.toml:1: window must be a time from 1s to 1h, such as "1s", not 0.5.'),
    ('window = "2h"', 'a.toml:1: window must be a time from 1s to 1h, such as "1s", not "2h".'),
    ("window = true", 'a.toml:1: window must be a time from 1s to 1h, such as "1s", not true.'),
    ("max_overhead = 101", "a.toml:1: max_overhead must be a number from 0 to 100, not 101."),
    ('max_overhead = "1"', 'a.toml:1: max_overhead must be a number from 0 to 100, not "1".'),
    ("max_overhead = nan", "a.toml:1: max_overhead must be a number from 0 to 100, not NaN."),
    (
        "max_node_overhead = 0",
        "a.toml:1: max_node_overhead must be a number from 0.1 to 100, not 0.",
    ),
    (
        'max_memory = "1MB"',
        'a.toml:1: max_memory must be a size from 64MiB to 64GiB, such as "64MiB", not "1MB".',
    ),
    (
        'max_memory = "much"',
        'a.toml:1: max_memory must be a size from 64MiB to 64GiB, such as "64MiB", not "much".',
    ),
    (
        "max_processes = 1.5",
        "a.toml:1: max_processes must be a whole number from 1 to 1024, not 1.5.",
    ),
    ("min_age = -1", 'a.toml:1: min_age must be a time from 0s to 1h, such as "10s", not -1.'),
    (
        'environment = ["A-B"]',
        "a.toml:1: environment is a list of names of variables: each item must be a name of a "
        'variable, not "A-B".',
    ),
    (
        'host_root = "host"',
        'a.toml:1: host_root must be an absolute path, such as "/var/lib/ebpfprof", not "host".',
    ),
    (
        'listen = "6061"',
        'a.toml:1: listen must be HOST:PORT, such as "127.0.0.1:6061", or "" for nothing, not '
        '"6061".',
    ),
    ('allow_unknown_go = "yes"', 'a.toml:1: allow_unknown_go must be true or false, not "yes".'),
    ("node = 3", "a.toml:1: node must be a name, not 3."),
    ('node = "a\\u0007"', 'a.toml:1: node must be a name, not "a\\u0007".'),
    (
        "# a comment\n\nmax-overhead = 1",
        "a.toml:3: There is no setting 'max-overhead'. Did you mean max_overhead?",
    ),
    ("colour = 1", "a.toml:1: There is no setting 'colour'."),
    ("node = 'a'\nnode = 'b'", "a.toml:2: This key is in the file twice."),
    ("[ring]\n[ring]", "a.toml:2: This table is in the file twice."),
    ("ring = 1", "a.toml:1: ring must be a table, [ring]."),
    ("[ring]\n\nsize = 1", "a.toml:3: [ring] has no setting 'size'."),
    (
        "[ring]\nmax_age = 1",
        'a.toml:2: max_age must be a time from 10m to 3660d, such as "10m", not 1.',
    ),
    ("[options]\nhz = 0", "a.toml:2: hz must be a whole number from 1 to 999, not 0."),
    ("[options]\nhzz = 9", "a.toml:2: There is no recording option 'hzz'. Did you mean hz?"),
    ("[options]\nkernel = 1", "a.toml:2: kernel must be true or false, not 1."),
    (
        "[options]\nblock_rate_ns = 5",
        "a.toml:2: block_rate_ns and max_overhead both say which waits to record: omit "
        "block_rate_ns.",
    ),
    ("sinks = 1", "a.toml:1: sinks must be tables, each below its own [[sinks]]."),
    ("[[sinks]]", "a.toml:1: This sink has no type."),
    (
        '[[sinks]]\ntype = "folders"',
        'a.toml:2: type must be one of folder, otlp, parca, pyroscope, not "folders". Did you mean '
        "folder?",
    ),
    (SINK_HEAD, "a.toml:1: This sink has no path."),
    (
        SINK_HEAD + 'path = "/a"\n' + SINK_HEAD + 'path = "/b"',
        "a.toml:4: The name 'folder' belongs to another sink: set another name.",
    ),
    (
        SINK_HEAD + 'path = "/a"\nname = "ring"',
        "a.toml:1: The name 'ring' belongs to the ring: set another name.",
    ),
    (REMOTE_HEAD[:-1].rpartition("\n")[0], "a.toml:1: This sink has no url."),
    (REMOTE_HEAD + 'path = "/a"', "a.toml:4: A sink of the type otlp has no path."),
    (
        SINK_HEAD + 'path = "/a"\nusername = "x"',
        "a.toml:4: A sink of the type folder has no username.",
    ),
    (
        '[[sinks]]\ntype = "otlp"\nurl = "https://till:secret@shop"',
        "a.toml:3: url must have no user and password: use username and password_file.",
    ),
    (
        '[[sinks]]\ntype = "otlp"\nurl = "shop:4318"',
        'a.toml:3: url must be an address, such as "https://pyroscope.example:4040", not '
        '"shop:4318".',
    ),
    (REMOTE_HEAD + 'username = "x"', "a.toml:4: username needs a password_file."),
    (REMOTE_HEAD + 'password_file = "/x"', "a.toml:4: password_file needs a username."),
    (REMOTE_HEAD + 'key_file = "/x"', "a.toml:4: key_file needs a certificate_file."),
    (
        REMOTE_HEAD + '\nbearer_token_file = "/nowhere/token"',
        "a.toml:5: bearer_token_file: /nowhere/token can't be read: No such file or directory.",
    ),
    (
        REMOTE_HEAD + 'username = "x"\npassword_file = "/dev/null"',
        "a.toml:5: password_file: /dev/null is not a regular file.",
    ),
    (
        REMOTE_HEAD + 'bearer_token_file = "/x"\nusername = "x"\npassword_file = "/x"',
        "a.toml:4: bearer_token_file and username exclude each other: use one.",
    ),
    (REMOTE_HEAD + 'ca_file = "/x"', "a.toml:4: ca_file needs a url with https."),
    (
        REMOTE_HEAD.replace("http:", "https:") + 'ca_file = "/nowhere/ca"',
        "a.toml:4: ca_file: /nowhere/ca can't be read: No such file or directory.",
    ),
    (
        REMOTE_HEAD.replace("http:", "https:") + f'ca_file = "{__file__}"',
        "a.toml:4: ca_file can't be used: NO_CERTIFICATE_OR_CRL_FOUND.",
    ),
    ("rules = [1]", "a.toml:1: rules must be tables, each below its own [[rules]]."),
    (
        '[[rules]]\naction = "kep"',
        "a.toml:2: action must be one of replace, keep, drop, labelmap, labeldrop, labelkeep, "
        'lowercase, uppercase, not "kep". Did you mean keep?',
    ),
    (RULE_HEAD, "a.toml:1: A rule with the action drop needs a regex."),
    (
        '[[rules]]\naction = "keep"\nregex = "a"',
        "a.toml:1: A rule with the action keep needs a source.",
    ),
    (
        '[[rules]]\naction = "keep"\nregex = "a"\nsource = []',
        "a.toml:1: A rule with the action keep needs a source.",
    ),
    ('[[rules]]\nsource = "a"', "a.toml:1: A rule with the action replace needs a target."),
    (
        RULE_HEAD + 'regex = "["',
        'a.toml:4: regex must be a regular expression, not "[": unterminated character set at '
        "position 0.",
    ),
    (
        RULE_HEAD + 'regex = "(a+)+"',
        'a.toml:4: regex must be a regular expression, not "(a+)+": a repetition repeats a '
        "repetition, as in (a+)+, which can take forever on some texts.",
    ),
    (
        RULE_HEAD + 'regex = "a"\n' + RULE_HEAD + "regexp = 'a'",
        "a.toml:8: A rule has no key 'regexp'. Did you mean regex?",
    ),
    (
        RULE_HEAD + 'regex = "a"\n\n[[rules]]\ntarget = "a b"',
        "a.toml:7: target must be a name of a label, not 'a b'.",
    ),
    (
        'host_root = "/a\\u0000"',
        'a.toml:1: host_root must be an absolute path, such as "/var/lib/ebpfprof", not '
        '"/a\\u0000".',
    ),
    (
        f"environment = {[f'A{n}' for n in range(1001)]}",
        "a.toml:1: environment must be a list of names of variables, not "
        '["A0", "A1", "A2", "A3", "A4", "A5", "A6", "A7", "A8", "A9",...',
    ),
    ("window = ", "a.toml:1: This is not TOML: Invalid value."),
    ("x", "a.toml:1: This is not TOML: Expected '=' after a key in a key/value pair."),
]


@pytest.mark.parametrize(("text", "sentence"), WRONG)
def test_each_mistake_gets_a_sentence_with_its_line(text: str, sentence: str) -> None:
    with pytest.raises(BadConfig) as caught:
        parsed(text, "a.toml")
    assert str(caught.value) == sentence


def _mistakes(setting: Setting) -> list[object]:
    """Values that no setting of that type takes, by type and by range."""
    by_type: dict[type, list[object]] = {
        NumberValue: [True, "1", [], -1, 10**30],
        TimeValue: [True, [], "x", "-1s", "99999d"],
        SizeValue: [True, [], "x", -1, "999999TiB"],
        SwitchValue: [0, "true", []],
        WordValue: [0, "nothing", []],
        ListValue: [0, [0], {}],
        PathValue: [0, "relative", []],
        UrlValue: [
            0,
            [],
            "ftp://x",
            "http://",
            "https://a b",
            "http://x/?a",
            "http://x:99999",
            "x",
        ],
    }
    return by_type.get(type(setting.value), [0, []])


def head_of(setting: Setting) -> str:
    """The beginning of a sink that may have this setting."""
    kind = (setting.sinks or ("folder",))[0]
    return "[[sinks]]\n" + (f'type = "{kind}"\n' if setting.name != "type" else "")


@pytest.mark.parametrize(
    ("head", "setting"),
    [("", each) for each in settings_of(Settings)]
    + [("[ring]\n", each) for each in settings_of(RingSettings)]
    + [("[kubernetes]\n", each) for each in settings_of(KubernetesSettings)]
    + [(head_of(each), each) for each in settings_of(SinkSettings)]
    + [("[[rules]]\n", each) for each in settings_of(Rule)],
    ids=lambda each: each.name if isinstance(each, Setting) else "",
)
def test_no_setting_takes_a_wrong_type_or_range(head: str, setting: Setting) -> None:
    line = head.count("\n") + 1
    for wrong in _mistakes(setting):
        text = f"{head}{setting.name} = {json.dumps(wrong).replace('{}', '{ a = 1 }')}"
        with pytest.raises(BadConfig, match=rf"^a\.toml:{line}: {setting.name} ") as caught:
            parsed(text, "a.toml")
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize("table", [Settings, RingSettings, KubernetesSettings, Rule, SinkSettings])
def test_every_field_is_a_setting_or_a_table(table: type) -> None:
    tables = {"options", "ring", "kubernetes", "sinks", "rules"}
    names = {field.name for field in fields(table)} - tables
    assert names == {setting.name for setting in settings_of(table)}
    assert all(setting.help.endswith(".") for setting in settings_of(table))


def test_bounds_are_taken_themselves() -> None:
    found = parsed('min_age = 0\nmax_memory = "64GiB"\nwindow = "1h"\nmax_processes = 1024', "a")
    assert (found.min_age, found.max_memory, found.window) == (0, 64 << 30, 3600)
    assert found.max_processes == 1024


def test_a_file_is_only_read_if_no_other_user_can_change_it(tmp_path: Path) -> None:
    path = tmp_path / "agent.toml"
    path.write_text("window = 9")
    assert load(str(path)).window == 9
    path.chmod(0o666)
    with pytest.raises(BadConfig, match="can be changed by all users: chmod o-w it"):
        load(str(path))
    path.chmod(0o644)
    os.chown(path, 12345, 12345)
    with pytest.raises(BadConfig, match="belongs to neither root nor the user"):
        load(str(path))


def test_files_that_are_none_are_refused(tmp_path: Path) -> None:
    with pytest.raises(BadConfig, match=r"There is no file .*: create it, or omit --config"):
        load(str(tmp_path / "missing"))
    with pytest.raises(BadConfig, match=r"is not a regular file|can't be read: Is a directory"):
        load(str(tmp_path))
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(BadConfig, match="is not a regular file"):
        load(str(tmp_path / "pipe"))
    (tmp_path / "long").write_text("#" * (65 << 10))
    with pytest.raises(BadConfig, match="is longer than 64 KiB"):
        load(str(tmp_path / "long"))
    (tmp_path / "bytes").write_bytes(b"window = 9\n\xff")
    with pytest.raises(BadConfig, match="bytes:2: This is not UTF-8"):
        load(str(tmp_path / "bytes"))


def test_folders_of_systemd_are_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONFIGURATION_DIRECTORY", str(tmp_path))
    monkeypatch.setenv("STATE_DIRECTORY", "/srv/state")
    assert load(None).ring.path == "/srv/state"
    (tmp_path / "agent.toml").write_text("window = 7")
    assert (load(None).window, load(None).ring.path) == (7, "/srv/state")
