"""The configuration files: /etc/ebpfprof/config.toml, and one of the invoking user.

ebpfprof reads them as root. Hence no link in the path below the root of the tree is followed, and
a file counts only if it is a regular one of root or of the user that others can't write to.
"""

from __future__ import annotations

import os
import pwd
import re
import stat
import tomllib
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from ebpfprof.console.output_folder import invoking_user
from ebpfprof.console.terminal import say
from ebpfprof.console.text import printable
from ebpfprof.errors import BadConfig

_TAKES_USERS: Final = "user-config"
_MAX_BYTES: Final = 64 << 10
_SYSTEM: Final = ("etc", "ebpfprof", "config.toml")
_USER: Final = (".config", "ebpfprof", "config.toml")
_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_FILE: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class ConfigFile:
    """What a file holds: options for all verbs, and tables for single verbs."""

    path: str
    tables: dict[str, Any]
    text: str

    def where(self, key: str, table: str = "") -> str:
        """The place of a key, FILE:LINE; the file alone if the key is written in a rare way."""
        here = ""
        for number, line in enumerate(self.text.splitlines(), 1):
            if heading := re.match(r"\s*\[\s*[\"']?([^\]\"']*?)[\"']?\s*\]", line):
                here = heading[1]
                if not table and here == key:
                    return f"{self.path}:{number}"
            found = re.match(r"\s*[\"']?([A-Za-z0-9_-]+)[\"']?\s*=", line)
            if here == table and found and found[1] == key:
                return f"{self.path}:{number}"
        return self.path


def config_files(root: Path = Path("/")) -> list[ConfigFile]:
    """The files that are there: that of the system, then that of the user, whose values win.

    Under sudo the user is the one who typed it. With `user-config = false` the system's file stands
    alone: where sudo allows a user a few commands, their file must not add options. Raises
    BadConfig.
    """
    invoking = invoking_user()
    uid = invoking.uid if invoking else os.geteuid()
    found = []
    if system := _read(root, _SYSTEM, uid):
        found.append(system)
        takes_users = system.tables.pop(_TAKES_USERS, True)
        if not isinstance(takes_users, bool):
            where = system.where(_TAKES_USERS)
            raise BadConfig(f"{where}: {_TAKES_USERS} must be true or false.")
        if not takes_users:
            return found
    with suppress(KeyError):  # a container's user without an entry has no home
        if of_user := _read(Path(pwd.getpwuid(uid).pw_dir), _USER, uid):
            found.append(of_user)
    return found


def _read(base: Path, names: tuple[str, ...], uid: int) -> ConfigFile | None:
    """The file, None if there is none. Raises BadConfig."""
    path = base.joinpath(*names)
    shown = printable(str(path))
    try:
        data = _contents(base, names, uid, shown)
    except FileNotFoundError:
        return None
    except PermissionError as error:  # root may not read a home on NFS
        say(f"ebpfprof: {shown} can't be read ({error.strerror}) and is not used.", err=True)
        return None
    except OSError as error:
        if not os.path.lexists(path):
            return None
        raise BadConfig(
            f"{shown} can't be read ({error.strerror}): it must be a regular file, and no part of "
            "its path a symbolic link."
        ) from error
    try:
        text = data.decode()
        return ConfigFile(shown, tomllib.loads(text), text)
    except RecursionError as error:
        raise BadConfig(f"{shown} is nested too deeply.") from error
    except ValueError as error:  # of TOML, of UTF-8, or a number with too many digits
        at = re.search(r" \(at line (\d+), column \d+\)$", str(error))
        reason = str(error)[: at.start()] if at else str(error)
        where = f"{shown}:{at[1]}" if at else shown
        raise BadConfig(f"{where}: This is no TOML: {printable(reason)}.") from error


def _contents(base: Path, names: tuple[str, ...], uid: int, shown: str) -> bytes:
    """The bytes of the file. Raises OSError, and BadConfig if it may not be trusted."""
    *folders, name = names
    folder = os.open(base, _FOLDER)
    try:
        for each in folders:
            inside = os.open(each, _FOLDER | os.O_NOFOLLOW, dir_fd=folder)
            os.close(folder)
            folder = inside
        file = os.open(name, _FILE, dir_fd=folder)
    finally:
        os.close(folder)
    with open(file, "rb") as opened:
        status = os.fstat(file)
        if not stat.S_ISREG(status.st_mode):
            raise BadConfig(f"{shown} is not a regular file: remove it.")
        if status.st_uid not in (0, uid):
            raise BadConfig(
                f"{shown} belongs to neither root nor the user who calls ebpfprof: change its "
                "owner, or remove it."
            )
        if status.st_mode & stat.S_IWOTH:
            raise BadConfig(f"{shown} can be changed by all users: chmod o-w it.")
        data = opened.read(_MAX_BYTES + 1)
    if len(data) > _MAX_BYTES:
        raise BadConfig(f"{shown} is longer than {_MAX_BYTES >> 10} KiB: shorten it.")
    return data
