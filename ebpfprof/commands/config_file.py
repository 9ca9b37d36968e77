"""The configuration files: /etc/ebpfprof/config.toml, and one of the invoking user.

ebpfprof reads them as root. So it follows no link in the path below the root of the tree, and
takes only a regular file of root or of the user that others can't write to.
"""

from __future__ import annotations

import os
import pwd
from contextlib import suppress
from pathlib import Path
from typing import Final

from ebpfprof.console.output_folder import invoking_user
from ebpfprof.console.terminal import say
from ebpfprof.console.text import printable
from ebpfprof.errors import BadConfig
from ebpfprof.settings.toml_file import TomlFile, parsed, read_trusted
from ebpfprof.settings.values import SwitchValue

ROOT: Final = Path("/")
"""The folder with the system's etc."""

_TAKES_USERS: Final = "user-config"
_SYSTEM: Final = ("etc", "ebpfprof", "config.toml")
_USER: Final = (".config", "ebpfprof", "config.toml")
_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_FILE: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def config_files() -> list[TomlFile]:
    """The files that exist: the system's, then the user's, whose values win.

    Under sudo the user is the one who called sudo. With `user-config = false` the system's file
    counts alone: if sudo allows a user only some commands, the user's file must not add options.
    Raises BadConfig.
    """
    invoking = invoking_user()
    uid = invoking.uid if invoking else os.geteuid()
    files = []
    if system := _read(ROOT, _SYSTEM, uid):
        files.append(system)
        takes_users = True
        if _TAKES_USERS in system.tables:
            value = system.tables[_TAKES_USERS]
            takes_users = system.read(SwitchValue(), value, (_TAKES_USERS,))
            del system.tables[_TAKES_USERS]
        if not takes_users:
            return files
    with suppress(KeyError):  # the user of a container may have no entry, and so no home
        if of_user := _read(Path(pwd.getpwuid(uid).pw_dir), _USER, uid):
            files.append(of_user)
    return files


def _read(base: Path, names: tuple[str, ...], uid: int) -> TomlFile | None:
    """The file, None if there is none. Raises BadConfig."""
    path = base.joinpath(*names)
    shown = printable(str(path))
    try:
        text = read_trusted(_opened(base, names), shown, uid)
    except FileNotFoundError:
        return None
    except PermissionError as error:  # root may not read a home on NFS
        say(f"ebpfprof: Ignoring {shown}, which can't be read: {error.strerror}.", err=True)
        return None
    except OSError as error:
        if not os.path.lexists(path):
            return None
        raise BadConfig(
            f"{shown} can't be read ({error.strerror}): it must be a regular file, and no part of "
            "its path a symbolic link."
        ) from error
    return parsed(text, shown)


def _opened(base: Path, names: tuple[str, ...]) -> int:
    """The file, open, without following a link below `base`. Raises OSError."""
    *folders, name = names
    folder = os.open(base, _FOLDER)
    try:
        for inner in folders:
            inside = os.open(inner, _FOLDER | os.O_NOFOLLOW, dir_fd=folder)
            os.close(folder)
            folder = inside
        return os.open(name, _FILE, dir_fd=folder)
    finally:
        os.close(folder)
