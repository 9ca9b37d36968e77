"""Where the values of options come from: the command line, the environment, two files."""

from __future__ import annotations

import os
import pwd
import re
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import click
import pytest
from click.testing import CliRunner

from ebpfprof.commands import config_file
from ebpfprof.commands.cli import cli
from ebpfprof.commands.parameter_types import duration
from ebpfprof.commands.recording_options import RecordingCommand
from ebpfprof.commands.target_options import target_options
from ebpfprof.commands.verb import VERBS, Verb, settable, variable
from ebpfprof.errors import BadConfig, ExitCode
from ebpfprof.profilers.options import Options
from tests.tools.generate_docs import CONFIG

USER = 4321
Write = Callable[..., Path]


@pytest.fixture
def system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The root of a tree with /etc; the home of the user behind sudo is in it, as home."""
    entry = SimpleNamespace(pw_dir=str(tmp_path / "home"))
    monkeypatch.setattr(pwd, "getpwuid", {USER: entry}.__getitem__)
    monkeypatch.setenv("SUDO_UID", str(USER))
    monkeypatch.setenv("SUDO_GID", str(USER))
    monkeypatch.setattr(config_file, "ROOT", tmp_path)
    for name in [name for name in os.environ if name.startswith("EBPFPROF_")]:
        monkeypatch.delenv(name)
    (tmp_path / "home").mkdir()
    return tmp_path


@pytest.fixture
def write(system: Path) -> Write:
    def write(text: str, *, of_user: bool = False) -> Path:
        folder = system / "home/.config/ebpfprof" if of_user else system / "etc/ebpfprof"
        folder.mkdir(parents=True, exist_ok=True)
        file = folder / "config.toml"
        file.write_text(text)
        if of_user:
            os.chown(file, USER, USER)
        return file

    return write


def got(*given: str) -> dict[str, object]:
    """What a verb with some options gets."""
    seen: dict[str, object] = {}

    @click.command("attach", cls=Verb)
    @target_options(required=False)
    @click.option("-d", "--duration", "duration_s", type=duration(), default=30)
    @click.option("--hide-idle/--show-idle", default=False)
    def command(**values: object) -> None:
        seen.update(values)

    CliRunner().invoke(command, list(given), catch_exceptions=False)
    return seen


def recorded(*given: str) -> Options:
    seen: list[Options] = []

    @click.command("attach", cls=RecordingCommand)
    def command(options: Options) -> None:
        seen.append(options)

    result = CliRunner().invoke(command, list(given), catch_exceptions=False)
    assert seen, result.output
    return seen[0]


@pytest.mark.machine
def test_each_source_beats_those_behind_it(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    assert got()["duration_s"] == 30
    write("duration = 1")
    assert got()["duration_s"] == 1
    write("duration = 1\n[attach]\nduration = '2s'")
    assert got()["duration_s"] == 2
    write("duration = '3s'", of_user=True)
    assert got()["duration_s"] == 3
    monkeypatch.setenv("EBPFPROF_DURATION", "4s")
    assert got()["duration_s"] == 4
    assert got("-d", "5")["duration_s"] == 5


@pytest.mark.machine
def test_the_system_can_leave_out_the_users_file(write: Write) -> None:
    write("duration = '3s'", of_user=True)
    write("user-config = true")
    assert got()["duration_s"] == 3
    write("user-config = false\n[attach]\nduration = 2")
    assert got()["duration_s"] == 2
    write("user-config = false\n")
    assert got()["duration_s"] == 30
    write("\nuser-config = 0")
    with pytest.raises(BadConfig, match=r"config.toml:2: user-config must be true or false"):
        got()


@pytest.mark.machine
def test_a_user_can_not_decide_that(write: Write) -> None:
    write("user-config = false", of_user=True)
    with pytest.raises(BadConfig, match="user-config"):
        got()


def test_tables_of_other_verbs_are_left_alone(write: Write) -> None:
    write("[top]\nduration = 2\ninterval = 3")
    assert got()["duration_s"] == 30


@pytest.mark.parametrize(("text", "expected"), [("1", True), ("true", True), ("0", False)])
def test_a_switch_in_the_environment(
    system: Path, monkeypatch: pytest.MonkeyPatch, text: str, expected: bool
) -> None:
    monkeypatch.setenv("EBPFPROF_HIDE_IDLE", text)
    assert got()["hide_idle"] is expected
    assert got("--show-idle")["hide_idle"] is False


def test_lists_and_switches_in_a_file(write: Write) -> None:
    write("profile = ['block', 'cpu']\nby-lock = true\nkernel = false")
    options = recorded()
    assert options.kinds == ("block", "cpu")
    assert (options["by_lock"], options["kernel"]) == (True, False)


def test_processes_on_the_command_line_replace_those_of_a_file(write: Write) -> None:
    own = os.getpid()
    write("pid = 1")
    assert got()["pids"] == [1]
    assert got(str(own))["pids"] == [own]
    assert got("--pid", str(own))["pids"] == [own]


def test_the_command_line_chooses_between_options_that_exclude_each_other(write: Write) -> None:
    write("max-overhead = 2")
    assert recorded().max_overhead == 2
    assert recorded("--block-rate", "7").max_overhead == 0
    write("block-rate = 7")
    assert recorded("--max-overhead", "3").max_overhead == 3


def test_options_of_profiles_that_are_not_recorded_may_stand_in_a_file(write: Write) -> None:
    write("wall-hz = 50")
    assert recorded("--profile", "wall")["wall_hz"] == 50
    assert "wall" not in recorded("--profile", "block").kinds


@pytest.mark.parametrize(
    ("text", "line", "reason"),
    [
        ("# mine\nduratoin = 1", 2, "There is no verb or option 'duratoin'. Did you mean"),
        ("[attach]\n\ninterval = 1", 3, "attach has no option 'interval'."),
        ("[atach]\nduration = 1", 1, "There is no verb or option 'atach'. Did you mean attach?"),
        ("attach = 1", 1, "attach must be a table, [attach]."),
        (
            "\nduration = 'soon'",
            2,
            'duration must be a time of more than 0, such as "10s", not "soon"',
        ),
        ("duration = true", 1, "duration must be a text or a number, not true."),
        ("duration = [1]", 1, "duration must be a text or a number, not [1]."),
        ("duration = 0x" + "f" * 9000, 1, "duration must be a text or a number, not a number that"),
        ("[attach]\nhide-idle = 'yes'", 2, 'hide-idle must be true or false, not "yes".'),
        ("[attach]\nduration 1", 2, "This is not TOML: "),
    ],
)
def test_a_mistake_gets_a_sentence_with_file_and_line(
    write: Write, text: str, line: int, reason: str
) -> None:
    file = write(text)
    with pytest.raises(BadConfig, match="^" + re.escape(f"{file}:{line}: {reason}")) as raised:
        got()
    assert "\n" not in str(raised.value)
    assert raised.value.exit_code == ExitCode.USAGE


def test_a_switch_that_is_neither_on_nor_off_is_refused(
    system: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EBPFPROF_HIDE_IDLE", "maybe")
    with pytest.raises(BadConfig, match=r'^EBPFPROF_HIDE_IDLE must be 1 or 0, not "maybe"\.$'):
        got()


def test_a_wrong_value_in_the_environment_is_reported_with_its_name(
    system: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EBPFPROF_DURATION", "soon")
    with pytest.raises(BadConfig, match=r'^EBPFPROF_DURATION must be a time .*, not "soon"\.$'):
        got()
    assert got("-d", "1")["duration_s"] == 1


def replace_by_link(file: Path) -> None:
    file.rename(file.with_name("other"))
    file.symlink_to("other")


def replace_folder_by_link(file: Path) -> None:
    file.parent.rename(file.parent.with_name("other"))
    file.parent.symlink_to("other")


def replace_by_fifo(file: Path) -> None:
    file.unlink()
    os.mkfifo(file)


@pytest.mark.machine
@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (replace_by_link, "no part of its path a symbolic link"),
        (replace_folder_by_link, "no part of its path a symbolic link"),
        (replace_by_fifo, "is not a regular file"),
        (lambda file: os.chown(file, USER + 1, 0), "belongs to neither root nor the user"),
        (lambda file: file.chmod(0o666), "can be changed by all users"),
        (lambda file: file.write_text("#" * (65 << 10)), "is longer than 64 KiB"),
        (lambda file: file.write_text("a=" + "[" * 60000), "is nested too deeply"),
        (lambda file: file.write_bytes(b"a = '\xff'"), "This is not UTF-8"),
    ],
)
@pytest.mark.parametrize("of_user", [False, True])
def test_a_file_that_is_not_to_be_trusted_is_refused(
    write: Write, change: Callable[[Path], object], reason: str, of_user: bool
) -> None:
    change(write("duration = 1", of_user=of_user))
    with pytest.raises(BadConfig, match=reason):
        got()


def test_help_is_shown_whatever_the_files_hold(write: Write) -> None:
    write("nonsense")
    assert CliRunner().invoke(cli, ["attach", "--help"]).exit_code == 0


def test_the_example_of_the_documentation_is_read(write: Write) -> None:
    write("\n".join(CONFIG))
    above = click.Context(cli, help_option_names=[])
    command = cli.get_command(above, "attach")
    assert command is not None
    params = command.make_context("attach", ["1"], parent=above).params
    assert (params["duration_s"], params["hide_idle"], params["max_overhead"]) == (60, True, 0.5)
    assert params["kinds"] == ["block", "mutex"]


@pytest.mark.parametrize("name", VERBS)
def test_every_option_of_every_verb_has_a_variable(name: str) -> None:
    context = click.Context(cli, help_option_names=[])
    command = cli.get_command(context, name)
    assert isinstance(command, Verb)
    params = command.get_params(context)
    options = settable(param for param in params if isinstance(param, click.Option))
    assert options or name == "completion"
    assert all(re.fullmatch("EBPFPROF_[A-Z_]+", variable(key)) for key in options)
    assert "EBPFPROF_DEBUG" not in map(variable, options)
