"""Where the server listens: addresses, ports in use, unix sockets in hostile directories."""

from __future__ import annotations

import os
import socket
import stat
from contextlib import closing
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from ebpfprof.console.output_folder import Owner
from ebpfprof.errors import EbpfprofError
from ebpfprof.server.listener import ADDRESS, Address, listening, parse_address

NOBODY = Owner(65534, 65534)


@pytest.mark.parametrize(
    ("text", "address", "is_loopback"),
    [
        ("127.0.0.1:6060", Address("127.0.0.1", 6060), True),
        ("127.1.2.3:0", Address("127.1.2.3", 0), True),
        ("localhost:1", Address("localhost", 1), True),
        ("[::1]:6060", Address("::1", 6060), True),
        ("0.0.0.0:6060", Address("0.0.0.0", 6060), False),
        (":6060", Address("::", 6060), False),
        ("192.0.2.1:6060", Address("192.0.2.1", 6060), False),
        ("box.example:6060", Address("box.example", 6060), False),
        ("localhost.evil.example:1", Address("localhost.evil.example", 1), False),
        ("unix:/run/x.sock", Address(path="/run/x.sock"), True),
        ("unix:x", Address(path="x"), True),
    ],
)
def test_addresses_are_parsed(text: str, address: Address, is_loopback: bool) -> None:
    assert parse_address(text) == address
    assert address.is_loopback == is_loopback
    assert parse_address(str(address)) == address


@pytest.mark.parametrize(
    ("address", "urls"),
    [
        (Address("127.0.0.1", 1), ("http://127.0.0.1:1",)),
        (Address("localhost", 1), ("http://localhost:1",)),
        (Address("::1", 1), ("http://[::1]:1",)),
        (Address("2001:db8::1", 1), ("http://[2001:db8::1]:1",)),
        (Address("0.0.0.0", 1), ("http://127.0.0.1:1", "http://box:1")),
        (Address("::", 1), ("http://[::1]:1", "http://127.0.0.1:1", "http://box:1")),
        (Address(path="/x"), ()),
    ],
)
def test_urls_are_such_as_clients_can_open(
    address: Address, urls: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """0.0.0.0 and [::] are no addresses that a client could name."""
    monkeypatch.setattr(socket, "gethostname", lambda: "box")
    monkeypatch.setattr(socket, "has_dualstack_ipv6", lambda: True)
    assert address.urls() == urls
    monkeypatch.setattr(socket, "has_dualstack_ipv6", lambda: False)
    assert address.urls() == tuple(url for url in urls if address.host != "::" or "127" not in url)


@pytest.mark.parametrize("host", ["0.0.0.0", "::"])
def test_the_first_urls_of_all_addresses_are_answered(host: str) -> None:
    with listening(Address(host), None) as listener:
        *on_loopback, _ = Address(host, listener.getsockname()[1]).urls()
        assert on_loopback
        for url in on_loopback:
            found = urlsplit(url)
            with closing(socket.create_connection((found.hostname or "", found.port or 0))):
                pass


@pytest.mark.parametrize(
    "text",
    ["", "6060", "localhost", "localhost:x", "localhost:65536", "::1:6060", "unix:", "unix:/run/"],
)
def test_bad_addresses_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"^must be HOST:PORT, .* or unix:PATH, "):
        ADDRESS.parse(text)


def test_a_port_in_use_is_refused() -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as taken:
        address = Address("127.0.0.1", taken.getsockname()[1])
        with pytest.raises(EbpfprofError, match="listens there already"), listening(address, None):
            pass


def test_keepalive_finds_a_vanished_client() -> None:
    """A client whose machine is gone never hangs up, and its request would be recorded on."""
    with (
        listening(Address("127.0.0.1", 0), None) as listener,
        closing(socket.create_connection(listener.getsockname())),
        closing(listener.accept()[0]) as accepted,
    ):
        assert accepted.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
        idle_s = accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE)
        every_s = accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL)
        times = accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT)
        assert idle_s + every_s * times <= 120


def test_an_address_of_another_machine_is_refused() -> None:
    with (
        pytest.raises(EbpfprofError, match="no such address"),
        listening(Address("192.0.2.1", 0), None),
    ):
        pass


def connect(path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        client.connect(str(path))


@pytest.mark.parametrize("owner", [None, NOBODY])
def test_a_unix_socket_is_private_and_removed_with_the_server(
    owner: Owner | None, tmp_path: Path
) -> None:
    path = tmp_path / "s"
    before = os.umask(0)
    try:
        with listening(Address(path=str(path)), owner):
            found = path.lstat()
            connect(path)
            assert os.listdir(tmp_path) == ["s"]
    finally:
        os.umask(before)
    assert stat.S_ISSOCK(found.st_mode)
    assert stat.S_IMODE(found.st_mode) == 0o600
    assert (found.st_uid, found.st_gid) == ((owner.uid, owner.gid) if owner else (0, 0))
    assert os.listdir(tmp_path) == []


def test_a_path_that_is_too_long_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / ("x" * 120)
    folder.mkdir()
    with listening(Address(path=str(folder / "s")), None):
        assert stat.S_ISSOCK((folder / "s").lstat().st_mode)


@pytest.mark.parametrize("what", ["file", "link", "dangling link", "folder", "pipe", "foreign"])
def test_an_existing_file_is_neither_replaced_nor_followed(what: str, tmp_path: Path) -> None:
    path, other = tmp_path / "s", tmp_path / "other"
    other.write_text("mine")
    match what:
        case "file":
            path.write_text("mine")
        case "link":
            path.symlink_to(other)
        case "dangling link":
            path.symlink_to(tmp_path / "none")
        case "folder":
            path.mkdir()
        case "pipe":
            os.mkfifo(path)
        case "foreign":
            with socket.socket(socket.AF_UNIX) as stale:
                stale.bind(str(path))
            os.chown(path, 1234, 1234)
    before = path.lstat()

    with (
        pytest.raises(EbpfprofError, match="exists already"),
        listening(Address(path=str(path)), NOBODY),
    ):
        pass
    assert os.path.samestat(path.lstat(), before)
    assert other.read_text() == "mine"
    assert sorted(os.listdir(tmp_path)) == ["other", "s"]


@pytest.mark.parametrize("uid", [0, NOBODY.uid])
def test_a_stale_socket_is_replaced(uid: int, tmp_path: Path) -> None:
    path = tmp_path / "s"
    with socket.socket(socket.AF_UNIX) as stale:
        stale.bind(str(path))
    os.chown(path, uid, 0)
    with listening(Address(path=str(path)), NOBODY):
        connect(path)
    assert os.listdir(tmp_path) == []


def test_a_socket_in_use_is_not_replaced(tmp_path: Path) -> None:
    path = tmp_path / "s"
    with listening(Address(path=str(path)), None):
        with (
            pytest.raises(EbpfprofError, match="listens there already"),
            listening(Address(path=str(path)), None),
        ):
            pass
        connect(path)


def test_the_server_removes_only_its_own_socket(tmp_path: Path) -> None:
    path = tmp_path / "s"
    with listening(Address(path=str(path)), None):
        path.unlink()
        path.write_text("somebody else's")
    assert path.read_text() == "somebody else's"


def test_a_missing_folder_is_refused(tmp_path: Path) -> None:
    with (
        pytest.raises(EbpfprofError, match="Cannot open the directory"),
        listening(Address(path=str(tmp_path / "none" / "s")), None),
    ):
        pass
