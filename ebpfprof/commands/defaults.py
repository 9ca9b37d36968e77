"""Defaults that a user always gives: from the environment, and from two files in TOML.

    /etc/ebpfprof/config.toml, ~/.config/ebpfprof/config.toml
    EBPFPROF_OPTION, EBPFPROF_VERB_OPTION

The command line beats the environment, that the user's file, that /etc. With sudo the user is who
typed it. We may be root: a file counts only if it belongs to root or to that user, and no link is
followed. Which processes to record, and where to write, has no defaults.
"""

from __future__ import annotations

import os
import pwd
import re
import stat
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

import click

from ebpfprof.commands.parameter_types import similar
from ebpfprof.console.output_folder import invoking_user
from ebpfprof.console.text import printable

SYSTEM_FILE: Final = Path("/etc/ebpfprof/config.toml")
_USER_FILE: Final = Path(".config/ebpfprof/config.toml")
_PREFIX: Final = "EBPFPROF"
_MAX_BYTES: Final = 1 << 16
_NO_DEFAULT: Final = frozenset(
    {"pid", "name", "container", "all-go", "output", "force", "help", "version"}
)

Values = Mapping[str, Any]


class _Given(NamedTuple):
    """A default, and where it is from in words."""

    value: Any
    where: str


def defaults(group: click.Group, ctx: click.Context, verb: str) -> dict[str, Any]:
    """Click's default map of one verb. Raises click.UsageError, which names the file and line."""
    command = group.get_command(ctx, verb)
    if command is None:
        return {}
    sub = click.Context(command, info_name=verb, parent=ctx, resilient_parsing=True)
    options = _options(command, sub)
    found: dict[str, _Given] = {}
    for path, owners in _files():
        found.update(_of_file(group, ctx, verb, options, path, owners))
    found.update(_of_environment(verb, options))
    return {
        options[name].name or name: _checked(options[name], given, sub)
        for name, given in found.items()
    }


def _options(command: click.Command, ctx: click.Context) -> dict[str, click.Option]:
    """The options that may have defaults, by their long names without dashes."""
    return {
        flag[2:]: each
        for each in command.get_params(ctx)
        if isinstance(each, click.Option)
        for flag in each.opts
        if flag.startswith("--") and flag[2:] not in _NO_DEFAULT
    }


def _files() -> Iterator[tuple[Path, tuple[int, ...]]]:
    """The files, the one that counts most last, and the users to whom each may belong."""
    yield SYSTEM_FILE, (0,)
    user = invoking_user()
    uid = user.uid if user else os.getuid()
    try:
        home = pwd.getpwuid(uid).pw_dir
    except KeyError:
        return
    yield Path(home) / _USER_FILE, (0, uid)


def _of_file(
    group: click.Group,
    ctx: click.Context,
    verb: str,
    options: Mapping[str, click.Option],
    path: Path,
    owners: tuple[int, ...],
) -> dict[str, _Given]:
    text = _text(path, owners)
    try:
        tables = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise click.UsageError(f"{path} is no TOML: {printable(str(error))}.") from error
    verbs = group.list_commands(ctx)
    found: dict[str, _Given] = {}
    own: Values = {}
    for key, value in tables.items():
        if isinstance(value, dict):
            if key not in verbs:
                raise _unknown(path, text, key, f"There is no verb [{key}]", verbs)
            own = value if key == verb else own
        elif key in options:
            found[key] = _Given(value, _place(path, text, key))
        elif key not in _all_options(group, ctx):
            raise _unknown(path, text, key, f"No verb has the option {key}", options)
    for key, value in own.items():
        if key not in options:
            raise _unknown(path, text, key, f"{verb} has no option {key}", options)
        found[key] = _Given(value, _place(path, text, key))
    return found


def _all_options(group: click.Group, ctx: click.Context) -> set[str]:
    commands = [group.get_command(ctx, name) for name in group.list_commands(ctx)]
    return {
        name
        for each in commands
        if each
        for name in _options(each, click.Context(each, parent=ctx, resilient_parsing=True))
    }


def _of_environment(verb: str, options: Mapping[str, click.Option]) -> Iterator[tuple[str, _Given]]:
    for name in options:
        for words in ((name,), (verb, name)):
            variable = "_".join((_PREFIX, *words)).upper().replace("-", "_")
            value = os.environ.get(variable)
            if value:
                yield name, _Given(value, f"The variable {variable}")


def _checked(option: click.Option, given: _Given, ctx: click.Context) -> Any:  # noqa: ANN401 - as click has it
    """The value as click takes it. Raises click.UsageError."""
    value = given.value
    try:
        if option.is_flag:
            return click.BOOL.convert(value, option, ctx)
        parts = value if isinstance(value, list) else [value]
        if any(isinstance(part, (bool, dict, list)) for part in parts):
            raise click.BadParameter("This is neither text nor a number.")
        texts = [str(part) for part in parts]
        if not option.multiple and len(texts) != 1:
            raise click.BadParameter("This takes one value.")
        checked = texts if option.multiple else texts[0]
        option.process_value(click.Context(ctx.command, parent=ctx.parent), checked)
    except click.BadParameter as error:
        name = option.opts[-1]
        raise click.UsageError(f"{given.where}: {name}: {printable(error.message)}") from error
    return checked


def _text(path: Path, owners: tuple[int, ...]) -> str:
    """What is in the file; "" if there is none. Raises click.UsageError."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return ""
    except OSError as error:
        raise _unusable(path, f"it can't be opened: {error.strerror}") from error
    with open(fd, "rb") as file:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode):
            raise _unusable(path, "it is no regular file")
        if found.st_uid not in owners or found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise _unusable(path, "others may write to it: chown and chmod 644 it")
        data = file.read(_MAX_BYTES + 1)
    if len(data) > _MAX_BYTES:
        raise _unusable(path, f"it is larger than {_MAX_BYTES >> 10} KiB")
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise _unusable(path, "it is no UTF-8") from error


def _unusable(path: Path, why: str) -> click.UsageError:
    return click.UsageError(f"The defaults in {path} are not used: {why}. Or remove the file.")


def _unknown(
    path: Path, text: str, key: str, what: str, names: Mapping[str, object] | list[str]
) -> click.UsageError:
    hint = similar(key, names)
    why = " that has a default" if key in _NO_DEFAULT else ""
    return click.UsageError(f"{_place(path, text, key)}: {printable(what)}{why}.{hint}")


def _place(path: Path, text: str, key: str) -> str:
    """The file and the line of a key, as far as a search can tell."""
    pattern = re.compile(rf"\s*(\[\s*)?[\"']?{re.escape(key)}[\"']?\s*[]=]")
    for number, line in enumerate(text.splitlines(), 1):
        if pattern.match(line):
            return f"{path}, line {number}"
    return str(path)
