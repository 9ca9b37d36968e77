"""The types of settings: what they take, and one text for one mistake wherever it is."""

from __future__ import annotations

import pwd
import re
from pathlib import Path
from types import SimpleNamespace

import pytest
from click.testing import CliRunner

from ebpfprof.agent.settings_file import parsed
from ebpfprof.commands import config_file
from ebpfprof.commands.cli import cli
from ebpfprof.commands.verb import variable as environment_variable
from ebpfprof.errors import BadConfig
from ebpfprof.settings.values import (
    ConvertedValue,
    ListValue,
    NumberValue,
    PathValue,
    SizeValue,
    SwitchValue,
    TextValue,
    TimeValue,
    UrlValue,
    Value,
    WordValue,
    size_text,
    time_text,
)


def reject(text: str) -> int:
    raise ValueError("it is odd.")


def said_of_flag(name: str, value: str) -> str:
    shown = CliRunner().invoke(cli, ["attach", "--pid", "1", f"--{name}", value])
    assert shown.exit_code == 2
    return shown.output.splitlines()[-1]


def said_of_default() -> str:
    with pytest.raises(BadConfig) as caught:
        CliRunner().invoke(cli, ["attach", "--pid", "1"], catch_exceptions=False)
    return str(caught.value)


@pytest.mark.parametrize(
    ("name", "value", "end"),
    [
        ("max-overhead", "101", "must be a number from 0 to 100, not 101."),
        ("max-overhead", "x", 'must be a number from 0 to 100, not "x".'),
        ("hz", "0", "must be a whole number from 1 to 999, not 0."),
    ],
)
def test_a_mistake_gets_the_same_text_in_each_place(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str, value: str, end: str
) -> None:
    file = tmp_path / "etc/ebpfprof/config.toml"
    file.parent.mkdir(parents=True)
    monkeypatch.setattr(config_file, "ROOT", tmp_path)
    home = SimpleNamespace(pw_dir=str(tmp_path))
    monkeypatch.setattr(pwd, "getpwuid", lambda _: home)
    assert said_of_flag(name, value) == f"Error: --{name} {end}"
    variable = environment_variable(name)
    monkeypatch.setenv(variable, value)
    assert said_of_default() == f"{variable} {end}"
    monkeypatch.delenv(variable)
    written = value if value.isdigit() else f'"{value}"'
    file.write_text(f"\n{name} = {written}")
    assert said_of_default() == f"{file}:2: {name} {end}"
    key = name.replace("-", "_")
    table = "[options]\n" if key == "hz" else "\n"
    with pytest.raises(BadConfig) as caught:
        parsed(f"{table}{key} = {written}", "agent.toml")
    assert str(caught.value) == f"agent.toml:2: {key} {end}"


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (NumberValue(0, 9), "7", 7),
        (NumberValue(0, 9, is_fraction=True), "0.5", 0.5),
        (TimeValue(), "1m30s", 90.0),
        (TimeValue(), "2d", 172800.0),
        (TimeValue(may_be_0=True), "0", 0.0),
        (SizeValue(0, 1 << 40), "512MiB", 512 << 20),
        (ListValue(WordValue(lambda: ("a", "b")), "words"), "b, a,b", ("b", "a")),
    ],
)
def test_a_text_is_read_by_its_type(kind: Value, text: str, value: object) -> None:
    assert kind.parse(text) == value


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (NumberValue(0, 9), "7"),
        (NumberValue(0, 9), True),
        (NumberValue(0, 9), 7.5),
        (SwitchValue(), 1),
        (TimeValue(), 0),
        (TimeValue(), True),
        pytest.param(TimeValue(), 10**5000, id="long time"),
        pytest.param(SizeValue(0, 9), 10**5000, id="long size"),
        (WordValue(lambda: ("a", "b")), "c"),
        (WordValue(lambda: ("a", "b")), 1),
        (TextValue(), "\a"),
        (TextValue(), ""),
    ],
)
def test_a_value_of_a_file_must_have_the_type_itself(kind: Value, value: object) -> None:
    with pytest.raises(ValueError, match=r"^must be ") as caught:
        kind.read(value)
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0, "0s"),
        (0.05, "50ms"),
        (0.25, "250ms"),
        (1.0, "1s"),
        (1.5, "1.5s"),
        (60.0, "1m"),
        (90.0, "90s"),
        (3600.0, "1h"),
        (86400.0, "1d"),
        (604800.0, "7d"),
    ],
)
def test_a_time_is_written_as_it_is_read(seconds: float, text: str) -> None:
    assert time_text(seconds) == text
    assert TimeValue(may_be_0=True).parse(text) == seconds


@pytest.mark.parametrize(
    ("size", "text"),
    [(0, "0"), (1000, "1000"), (1024, "1KiB"), (3 << 20, "3MiB"), (1 << 30, "1GiB")],
)
def test_a_size_is_written_as_it_is_read(size: int, text: str) -> None:
    assert size_text(size) == text
    assert SizeValue(0, 1 << 50).parse(text) == size


@pytest.mark.parametrize(
    ("kind", "value", "read"),
    [
        (UrlValue(), "https://a.example:4040/", "https://a.example:4040"),
        (UrlValue(), "http://[::1]:1/push", "http://[::1]:1/push"),
        (UrlValue(words=("off",)), "off", "off"),
        (PathValue(), "/var/lib/x", "/var/lib/x"),
        (NumberValue(0, 9), 9, 9),
        (NumberValue(), 0, 0),
        (NumberValue(), (1 << 31) - 1, (1 << 31) - 1),
        (NumberValue(0, 9, is_fraction=True), 0.25, 0.25),
        (TimeValue(1, 5), 5, 5),
        (TimeValue(1, 5), "1s", 1),
        (SizeValue(1, 9), 9, 9),
        (SizeValue(1, 1 << 20), "1KiB", 1024),
        (TextValue(may_be_empty=True), "", ""),
        (TextValue(form=re.compile("[a-z]+")), "abc", "abc"),
        (WordValue(lambda: ("a", "b")), "b", "b"),
        (ListValue(TextValue(), "names"), ["a", "b"], ("a", "b")),
        (ListValue(TextValue(), "names"), [], ()),
        (ListValue(TextValue(), "names", may_be_text=True), "a", ("a",)),
        (ConvertedValue("a number", int), "12", 12),
    ],
)
def test_a_value_of_a_file_is_read(kind: Value, value: object, read: object) -> None:
    assert kind.read(value) == read


LONG = "a" * 5000


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        *(
            (UrlValue(), f"https://{rest}")
            for rest in ("", ":80", "a:0", "a/?b", "a/#b", "[a", "ü")
        ),
        (UrlValue(), "ftp://a"),
        (UrlValue(), "a.example"),
        (UrlValue(), 7),
        (UrlValue(), f"https://{LONG}"),
        (PathValue(), "var/lib"),
        (PathValue(), "/var\0"),
        (PathValue(), 7),
        (PathValue(), f"/{LONG}"),
        (NumberValue(), 1 << 31),
        (NumberValue(1, 9), 0),
        (NumberValue(0, 9, is_fraction=True), 9.5),
        (NumberValue(0, 9, is_fraction=True), False),
        (TimeValue(1, 5), "6s"),
        (TimeValue(1, 5), 0.5),
        (TimeValue(), ["1s"]),
        (SizeValue(1, 9), 0),
        (SizeValue(1, 9), True),
        (SizeValue(1, 9), 2.0),
        (TextValue(), 7),
        (TextValue(), LONG),
        (TextValue(form=re.compile("[a-z]+")), "abC"),
        (TextValue(form=re.compile("[a-z]*")), ""),
        (ListValue(TextValue(), "names"), "a"),
        (ListValue(TextValue(), "names"), {"a": 1}),
        (ListValue(TextValue(), "names", may_be_text=True), 7),
        (ListValue(TextValue(), "names", may_be_empty=False), []),
        (ConvertedValue("a number", int), 12),
        (ConvertedValue("a number", int), "x"),
    ],
)
def test_a_wrong_value_of_a_file_is_refused(kind: Value, value: object) -> None:
    with pytest.raises(ValueError, match=r"^must be ") as caught:
        kind.read(value)
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize(
    ("kind", "value", "message"),
    [
        *(
            (UrlValue(), f"https://{login}@a", "must have no user and password: use username and")
            for login in ("me", "me:secret", ":secret")
        ),
        (UrlValue(login="token_file"), "https://me@a", "must have no user and password: use token"),
        (ListValue(TextValue(), "names"), ["ü", "ü"], 'has "ü" twice'),
        (ListValue(TextValue(), "names"), ["a", 7], "is a list of names: each item must be a text"),
        (
            WordValue(lambda: ("block", "cpu")),
            "blok",
            r'must be one of block, cpu, not "blok"\. Did you mean',
        ),
        (TextValue(form=re.compile("[a-z]+")), "größe", 'must be a text, not "größe"'),
        (
            ConvertedValue("even", reject, shows_reason=True),
            "7",
            'must be even, not "7": it is odd',
        ),
        (ConvertedValue("even", reject), "7", 'must be even, not "7"$'),
        (TimeValue(), "x", 'must be a time of more than 0, such as "10s", not "x"'),
        (TimeValue(1, 60), "x", 'must be a time from 1s to 1m, such as "1s"'),
        (TimeValue(most=60), "x", 'must be a time of more than 0 and at most 1m, such as "10s"'),
        (TimeValue(60), "x", 'must be a time of at least 1m, such as "1m"'),
        (TimeValue(0, 60, may_be_0=True), "x", 'must be a time from 0s to 1m, such as "10s"'),
    ],
)
def test_what_a_message_says(kind: Value, value: object, message: str) -> None:
    with pytest.raises(ValueError, match=f"^{message}"):
        kind.read(value)


def test_a_shown_value_is_cut_off() -> None:
    with pytest.raises(ValueError, match=r'not "a{59}\.\.\.$'):
        NumberValue().read(LONG)
