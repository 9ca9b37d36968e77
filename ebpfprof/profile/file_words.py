"""Words for files, and for waits until one can be read or written.

They may have text of the target in them: they are not fit for a terminal before printable().
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from ebpfprof.profile.waiting_for import FileWait, OpenFile

_KINDS: Final = {
    "unix": "a unix socket",
    "socket": "a socket",
    "pipe": "a pipe",
    "device": "a device",
    "file": "a file",
}


def wait(file_wait: FileWait, *, is_one: bool) -> str:
    """ "reads from 10.0.0.1:80, here 10.0.0.2:4711 (tcp, fd 7)"; not `is_one`: "read from"."""
    return f"{verb(file_wait, is_one=is_one)} {_place(file_wait.file)}"


def verb(file_wait: FileWait, *, is_one: bool) -> str:
    """What one, or several, do with the file."""
    ending = "s" if is_one else ""
    if file_wait.file.is_listener:
        return f"accept{ending} connections"
    if file_wait.file.is_connecting:
        return f"connect{ending}"
    return f"write{ending} to" if file_wait.is_write else f"read{ending} from"


def kind(file: OpenFile) -> str:
    """What it is, or where."""
    if file.path:
        return f"{file.kind} {file.path}" if file.kind == "unix" else file.path
    return _KINDS.get(file.kind, file.kind)


def _place(file: OpenFile) -> str:
    if file.is_listener and file.local:
        return f"on {file.local} ({file.kind}, fd {file.fd})"
    if file.is_connecting:
        return f"to {file.peer} ({file.kind}, fd {file.fd})"
    if file.peer:
        return f"{file.peer}, here {file.local} ({file.kind}, fd {file.fd})"
    if file.local:
        return f"{file.local} ({file.kind}, fd {file.fd})"
    return f"{'on ' if file.is_listener else ''}{kind(file)} (fd {file.fd})"
