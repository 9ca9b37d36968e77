"""What /proc shows of sockets, epoll and threads."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from unittest import mock

from ebpfprof.process.descriptors import Descriptors, internet_sockets, polled_by, unix_sockets
from ebpfprof.process.proc_files import ProcFiles
from ebpfprof.process.system_calls import arguments_of, name_of
from ebpfprof.process.threads import Threads, ThreadState, state_of
from ebpfprof.profile.waiting_for import OpenFile

HEAD = b"  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt uid\n"
LISTEN, ESTABLISHED, SYN_SENT = b"0A", b"01", b"02"


class Shown(ProcFiles):
    """What the kernel shows, and how often each file was read."""

    def __init__(self) -> None:
        self.texts: dict[str, bytes] = {}
        self.links: dict[str, str] = {}
        self.asked = Counter[str]()

    def read(self, name: str) -> bytes:
        self.asked[name] += 1
        return self.texts.get(name, b"")

    def names(self, folder: str) -> list[str]:
        self.asked[folder] += 1
        known = [*self.texts, *self.links]
        return sorted({name.split("/")[1] for name in known if name.startswith(f"{folder}/")})

    def link(self, name: str) -> str:
        return self.links.get(name, "")

    def socket(self, fd: int, inode: int) -> None:
        self.links[f"fd/{fd}"] = f"socket:[{inode}]"

    def tcp(self, *sockets: tuple[int, bytes, bytes]) -> None:
        """Sockets by inode, with the port of the peer, in hex, and the state."""
        lines = (
            b"   0: 0100007F:1F90 0700000A:%b %b 0:0 00:0 00000000     0        0 %d 1 x\n"
            % (port, state, inode)
            for inode, port, state in sockets
        )
        self.texts["net/tcp"] = HEAD + b"".join(lines)


def tcp(local: bytes, peer: bytes, state: bytes) -> OpenFile:
    line = b"   0: %b %b %b 0:0 00:0 00000000     0        0 77 1 x\n" % (local, peer, state)
    return internet_sockets(HEAD + line, "tcp", {77})[77]


def test_addresses_are_written_as_go_writes_them() -> None:
    assert tcp(b"0100007F:1F90", b"0700000A:C34E", b"01") == OpenFile(
        0, "tcp", "127.0.0.1:8080", "10.0.0.7:49998"
    )
    assert tcp(b"00000000:0050", b"00000000:0000", b"0A") == OpenFile(
        0, "tcp", ":80", is_listener=True
    )
    mapped, v6 = b"0000000000000000FFFF00000100007F:0050", b"B80D0120000000000000000001000000:0051"
    assert tcp(mapped, v6, b"02") == OpenFile(
        0, "tcp", "127.0.0.1:80", "[2001:db8::1]:81", is_connecting=True
    )


def test_lines_that_make_no_sense_are_left_out() -> None:
    for line in (b"x", b"0: zz:1 zz:2 01 0 0 0 0 0 77 1", b"0: 01:1 01:2 01 0 0 0 0 0 77 1"):
        assert internet_sockets(HEAD + line, "tcp", {77}) == {}


def test_unix_sockets_have_paths_or_none() -> None:
    text = (
        b"Num       RefCount Protocol Flags    Type St Inode Path\n"
        b"ffff8881: 00000002 00000000 00010000 0001 01 77 /run/a b.sock\n"
        b"ffff8882: 00000003 00000000 00000000 0001 03 78\n"
    )
    assert unix_sockets(text, {77, 78}) == {
        77: OpenFile(0, "unix", path="/run/a b.sock", is_listener=True),
        78: OpenFile(0, "unix"),
    }


def test_epoll_shows_its_data() -> None:
    text = (
        b"pos:\t0\nflags:\t02000002\nmnt_id:\t15\n"
        b"tfd:        5 events: 80002019 data: e2f5d07100000001  pos:0 ino:1c85 sdev:9\n"
        b"tfd:        3 events: 80002019 data:     c000001000  pos:0 ino:1c86 sdev:9\n"
    )
    assert polled_by(text) == [(5, 0xE2F5D07100000001), (3, 0xC000001000)]


def test_states_of_threads() -> None:
    assert state_of(b"running\n") == ThreadState(runs=True)
    assert state_of(b"-1 0xc000054d60 0x40a2b4\n") == ThreadState(runs=False)
    call = state_of(b"0 0x12 0xc000012345 0x1 0x0 0x0 0x0 0xc000054d60 0x40a2b4\n")
    assert call == ThreadState(False, 0, (0x12, 0xC000012345, 1, 0, 0, 0))
    assert state_of(b"") is None
    assert state_of(b"0 0x12 nonsense") is None


def test_names_and_arguments_of_system_calls() -> None:
    assert [name_of(number) for number in (0, 202, 232, 334, 424, 435)] == [
        *("read", "futex", "epoll_wait", "rseq", "pidfd_send_signal", "clone3"),
    ]
    assert name_of(400) == "system call 400"
    assert arguments_of(0) == ["fd", "buffer", "count"]
    assert arguments_of(39) == []


def test_files_of_this_process_have_kinds(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "file").write_text("x")
    paths = {"pipe": tmp_path / "fifo", "file": tmp_path / "file", "device": Path("/dev/null")}
    opened = {os.open(path, os.O_RDWR): kind for kind, path in paths.items()}
    reader, writer = os.pipe()
    try:
        found = Descriptors(ProcFiles(os.getpid())).files([*opened, reader])
    finally:
        for fd in (*opened, reader, writer):
            os.close(fd)
    assert {fd: file.kind for fd, file in found.items()} == {**opened, reader: "pipe"}
    assert {file.path for file in found.values()} == {"", *map(str, paths.values())}


def test_a_connection_is_read_once() -> None:
    shown = Shown()
    shown.socket(5, 77)
    shown.tcp((77, b"C34E", ESTABLISHED))
    known = Descriptors(shown)
    first = known.files([5])
    assert first[5].peer == "10.0.0.7:49998"
    assert known.files([5]) == first
    assert shown.asked["net/tcp"] == 1
    # Its number now stands for another one, and another number for it.
    shown.socket(5, 78)
    shown.socket(6, 77)
    shown.tcp((77, b"C34E", ESTABLISHED), (78, b"0050", ESTABLISHED))
    found = known.files([5, 6])
    assert {fd: (file.fd, file.peer) for fd, file in found.items()} == {
        5: (5, "10.0.0.7:80"),
        6: (6, "10.0.0.7:49998"),
    }
    assert shown.asked["net/tcp"] == 2


def test_a_socket_that_may_change_is_read_again() -> None:
    shown = Shown()
    shown.socket(5, 77)
    known = Descriptors(shown)
    assert known.files([5])[5] == OpenFile(5, "socket")
    shown.tcp((77, b"C34E", SYN_SENT))
    assert known.files([5])[5].is_connecting
    shown.tcp((77, b"C34E", ESTABLISHED))
    assert not known.files([5])[5].is_connecting
    assert shown.asked["net/tcp"] == 3


def test_nothing_is_known_for_long() -> None:
    shown = Shown()
    shown.socket(5, 77)
    known = Descriptors(shown)
    with mock.patch("time.monotonic") as clock:
        for now_s, port, peer in ((50, b"0051", 81), (59, b"0052", 81), (60, b"0053", 83)):
            clock.return_value = now_s
            shown.tcp((77, port, ESTABLISHED))
            assert known.files([5])[5].peer == f"10.0.0.7:{peer}"


def test_the_last_epoll_that_was_of_use_comes_first() -> None:
    shown = Shown()
    for epoll, fd in ((3, 10), (4, 11)):
        shown.links[f"fd/{epoll}"] = "anon_inode:[eventpoll]"
        shown.texts[f"fdinfo/{epoll}"] = b"tfd: %d events: 19 data: %x  pos:0\n" % (fd, fd)
    known = Descriptors(shown)
    assert list(known.polled()) == [[(10, 10)], [(11, 11)]]
    assert next(known.polled()) == [(11, 11)]
    assert list(known.polled()) == [[(11, 11)], [(10, 10)]]
    shown.links["fd/4"] = "socket:[7]"  # another file has its number
    assert list(known.polled()) == [[(10, 10)]]


def test_an_epoll_may_have_the_number_0() -> None:
    shown = Shown()
    shown.links["fd/0"] = "anon_inode:[eventpoll]"
    shown.texts["fdinfo/0"] = b"tfd: 7 events: 19 data: 7  pos:0\n"
    known = Descriptors(shown)
    for _ in range(2):
        assert list(known.polled()) == [[(7, 7)]]


def test_numbers_of_threads_in_another_namespace_are_read_again() -> None:
    shown = Shown()
    shown.texts = {f"task/{tid}/status": b"NSpid:\t%d\t%d\n" % (tid, tid - 90) for tid in (91, 92)}
    threads = Threads(shown)
    for _ in range(2):
        assert threads.numbers() == {1: 91, 2: 92}
    assert shown.asked["task/92/status"] == 2


def test_numbers_of_threads_are_the_same_in_our_namespace() -> None:
    shown = Shown()
    shown.texts = {f"task/{tid}/status": b"NSpid:\t%d\n" % tid for tid in (91, 92)}
    threads = Threads(shown)
    assert threads.numbers() == {91: 91, 92: 92}
    shown.texts["task/93/status"] = b""
    assert threads.numbers() == {91: 91, 92: 92, 93: 93}
    assert sum(shown.asked[f"task/{tid}/status"] for tid in (91, 92, 93)) == 1
