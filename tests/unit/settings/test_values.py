"""The types of settings: what they take, and one text for one mistake wherever it is."""

from __future__ import annotations

import pwd
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
    ListValue,
    NumberValue,
    SizeValue,
    SwitchValue,
    TextValue,
    TimeValue,
    Value,
    WordValue,
    size_text,
    time_text,
)


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
