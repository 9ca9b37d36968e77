"""Where the server listens: TCP, or a unix socket in a directory of any user."""

from __future__ import annotations

import errno
import ipaddress
import os
import re
import secrets
import socket
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from ebpfprof.console.output_folder import Owner
from ebpfprof.console.text import printable
from ebpfprof.errors import EbpfprofError
from ebpfprof.settings.values import ConvertedValue

_TCP = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([^:\[\]/]*)):([0-9]{1,5})")
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_ANY = {"0.0.0.0": "127.0.0.1", "::": "::1"}
"""All addresses of the machine, and the one of them that is loopback."""
BACKLOG = 128
"""How many clients may have connected before they are accepted."""
# After 30 s of silence, and then every 10 s, the kernel probes whether the client still exists.
_KEEP_ALIVE = ((socket.TCP_KEEPIDLE, 30), (socket.TCP_KEEPINTVL, 10), (socket.TCP_KEEPCNT, 3))


@dataclass(frozen=True, slots=True)
class Address:
    """Either a `path` of a unix socket, or a host (an address or a name) and a port."""

    host: str = ""
    port: int = 0
    path: str = ""

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can connect."""
        if self.path or self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False

    def urls(self) -> tuple[str, ...]:
        """Where clients find it, as http://HOST:PORT: first those on this machine. () on a socket.

        Of all addresses of the machine, that is loopback, and the name that the machine has.
        """
        if self.path:
            return ()
        hosts = [self.host]
        if self.host in _ANY:
            hosts = [_ANY[self.host], socket.gethostname()]
            if self.host == "::" and socket.has_dualstack_ipv6():
                hosts.insert(1, _ANY["0.0.0.0"])
        return tuple(f"http://{printable(str(replace(self, host=host)))}" for host in hosts)

    def __str__(self) -> str:
        if self.path:
            return f"unix:{self.path}"
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_address(text: str) -> Address:
    """HOST:PORT, :PORT (all addresses of the machine) or unix:PATH. Raises ValueError."""
    if text.startswith("unix:"):
        path = text.removeprefix("unix:")
        if not path or path.endswith("/") or "\0" in path:
            raise ValueError
        return Address(path=path)
    match = _TCP.fullmatch(text)
    if match is None or int(match[3]) > 65535:
        raise ValueError
    return Address(host=match[1] or match[2] or "::", port=int(match[3]))


ADDRESS = ConvertedValue(
    'HOST:PORT, such as "127.0.0.1:6060" or "[::1]:6060", or unix:PATH, such as '
    '"unix:/run/ebpfprof.sock"',
    parse_address,
)
"""The type of settings that are an address."""


@contextmanager
def listening(address: Address, owner: Owner | None) -> Iterator[socket.socket]:
    """A socket that listens while the block runs. Raises EbpfprofError.

    A unix socket belongs to `owner` (or to us, if that is None), and only they may connect.
    """
    if address.path:
        with _unix(Path(address.path), owner) as made:
            yield made
        return
    made = _tcp(address)
    try:
        yield made
    finally:
        made.close()


def _tcp(address: Address) -> socket.socket:
    try:
        addresses = socket.getaddrinfo(
            address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        # "localhost" is 127.0.0.1 to every client, but ::1 not to all of them.
        family, *_, where = min(addresses, key=lambda address: address[0] != socket.AF_INET)
        both = address.host == "::" and socket.has_dualstack_ipv6()
        made = socket.create_server(where[:2], family=family, backlog=BACKLOG, dualstack_ipv6=both)
    except OSError as error:
        raise EbpfprofError(f"Cannot listen at {printable(str(address))}: {_why(error)}") from error
    # Connections inherit these: for a client that vanished, its process would be recorded for ever.
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in _KEEP_ALIVE:
        made.setsockopt(socket.IPPROTO_TCP, option, value)
    return made


def _why(error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return (
            "something listens there already. End it, or choose another port with --listen "
            "(port 0 takes one that is free)."
        )
    if error.errno == errno.EADDRNOTAVAIL:
        return "this machine has no such address. Choose another with --listen."
    return f"{error.strerror or error}. Choose another place with --listen."


@contextmanager
def _unix(path: Path, owner: Owner | None) -> Iterator[socket.socket]:
    """A unix socket at `path`, which is removed again.

    The folder may belong to a hostile user. So the socket is made, and given to its owner, in a
    folder of our own inside it that only we can enter, and only then linked to its name: that fails
    if the name is taken, and follows no link.
    """
    shown = printable(str(path))
    try:
        folder = os.open(path.parent, _DIRECTORY)
    except OSError as error:
        raise EbpfprofError(
            f"Cannot open the directory of {shown}: {error.strerror}. Choose another with --listen."
        ) from error
    made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    ours: os.stat_result | None = None
    try:
        _remove_stale(folder, path.name, shown, owner)
        ours = _publish(made, folder, path.name, owner)
        made.listen(BACKLOG)
        yield made
    except FileExistsError as error:
        raise EbpfprofError(
            f"{shown} exists already. Remove it if nothing needs it, or choose another path with "
            "--listen."
        ) from error
    except OSError as error:
        raise EbpfprofError(
            f"Cannot listen at {shown}: {error.strerror}. Choose another place with --listen."
        ) from error
    finally:
        made.close()
        if ours is not None:
            _remove(folder, path.name, ours)
        os.close(folder)


def _publish(made: socket.socket, folder: int, name: str, owner: Owner | None) -> os.stat_result:
    """Bind a socket to a name in a folder; what the socket's file is. Raises OSError."""
    private = f".ebpfprof-{secrets.token_hex(16)}"
    os.mkdir(private, 0o700, dir_fd=folder)
    try:
        inside = os.open(private, _DIRECTORY | os.O_NOFOLLOW, dir_fd=folder)
        try:
            status = os.fstat(inside)
            if status.st_uid != os.geteuid() or stat.S_IMODE(status.st_mode) & 0o077:
                raise PermissionError(errno.EPERM, "another process changed the directory")
            # A path of at most 107 bytes, whatever the folder is called.
            made.bind(f"/proc/self/fd/{inside}/s")
            try:
                os.chmod("s", 0o600, dir_fd=inside)
                if owner is not None:
                    os.chown("s", owner.uid, owner.gid, dir_fd=inside, follow_symlinks=False)
                os.link("s", name, src_dir_fd=inside, dst_dir_fd=folder, follow_symlinks=False)
                return os.stat("s", dir_fd=inside, follow_symlinks=False)
            finally:
                os.unlink("s", dir_fd=inside)
        finally:
            os.close(inside)
    finally:
        with suppress(OSError):  # an empty directory does no harm
            os.rmdir(private, dir_fd=folder)


def _remove_stale(folder: int, name: str, shown: str, owner: Owner | None) -> None:
    """Remove a socket of ours that an earlier run left behind, and on which no process listens.

    Raises EbpfprofError if one does.
    """
    try:
        status = os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return
    uids = {os.geteuid()} | ({owner.uid} if owner else set())
    if not stat.S_ISSOCK(status.st_mode) or status.st_uid not in uids:
        return  # to make ours will fail, and say why
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)
        try:
            probe.connect(f"/proc/self/fd/{folder}/{name}")
        except ConnectionRefusedError:
            _remove(folder, name, status)
            return
        except OSError:
            pass
    raise EbpfprofError(
        f"Cannot listen at {shown}: something listens there already. End it, or choose another "
        "path with --listen."
    )


def _remove(folder: int, name: str, known: os.stat_result) -> None:
    """Remove a file, if it is still the `known` one."""
    with suppress(OSError):  # it is gone, or may stay: the next run removes it
        status = os.stat(name, dir_fd=folder, follow_symlinks=False)
        if os.path.samestat(status, known):
            os.unlink(name, dir_fd=folder)
