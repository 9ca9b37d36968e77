"""Requests behind a goroutine that waits for a disk: as seen in etcd and in nats-server."""

from __future__ import annotations

from typing import Final

from ebpfprof.findings import background_disk as rule
from ebpfprof.findings import calls
from ebpfprof.findings.evidence import BeforeAndAfter, Evidence
from ebpfprof.findings.host import HostMoment
from ebpfprof.profile.waiting_for import SystemCall, ThreadWait, WaitsFor
from tests.unit.findings.evidence import (
    HANDLER,
    LENGTH_NS,
    SELECT,
    dump,
    evidence,
    goroutine,
    waits,
)

ETCD: Final = "go.etcd.io/etcd/server/v3"
ON_DISK: Final = (
    *("syscall.Syscall", "syscall.Fdatasync", f"{ETCD}/storage/wal.(*WAL).sync:872"),
    f"{ETCD}/etcdserver.(*raftNode).start.func1:236",
)
PROPOSE: Final = (*SELECT, f"{ETCD}/etcdserver.(*EtcdServer).processInternalRaftRequestOnce:1123")
WATCH: Final = (*SELECT, f"{ETCD}/etcdserver/api/v3rpc.(*watchServer).Watch:180")
NATS: Final = "github.com/nats-io/nats-server/v2/server"
STORE: Final = (
    *("syscall.Syscall", "syscall.Fsync", f"{NATS}.(*msgBlock).flushPendingMsgsLocked:8925"),
    f"{NATS}.(*stream).internalLoop:5400",
)
LOAD: Final = (
    *("runtime.gopark", "runtime.semacquire1", "sync.(*RWMutex).RLock"),
    *(f"{NATS}.(*fileStore).LoadNextMsg:9825", f"{NATS}.(*consumer).setLeader.func2"),
)
LONG, SHORT = 104_000_000, 2_000_000


def stalled(part: float) -> BeforeAndAfter[HostMoment]:
    us = round(part * LENGTH_NS / 1000)
    return BeforeAndAfter(
        HostMoment(cpu_ns=0, stalled_us={"io": 0}), HostMoment(cpu_ns=0, stalled_us={"io": us})
    )


def etcd(
    *,
    on_disk: float = 0.66,
    waiting: tuple[str, ...] = PROPOSE,
    age_ns: int = LONG,
    io: float = 0.56,
    is_standing: bool = False,
) -> Evidence:
    """A server whose requests wait for 24 answers of the goroutine that writes the log."""
    dumps = [
        dump(
            *(
                goroutine(
                    goid,
                    "select",
                    *(*waiting, *HANDLER),
                    waited_ns=age_ns,
                    wait=goid if is_standing else 100 * number + goid,
                )
                for goid in range(1, 25)
            ),
            at_s=number,
        )
        for number in range(4)
    ]
    return evidence(
        waits("syscall", *ON_DISK, mean=on_disk),
        waits("select", *waiting, *HANDLER, mean=24),
        waits("running", *HANDLER, mean=1),
        dumps=dumps,
        host=stalled(io),
    )


def test_requests_that_wait_for_the_log() -> None:
    (finding,) = rule.find(etcd())
    assert finding.kind == "slow_disk"
    assert finding.title == (
        "Slow disk: etcdserver.(*raftNode).start.func1 waits for fdatasync 66 % of the time."
    )
    assert finding.lines == (
        "24.0 requests wait for it, most likely, in "
        "etcdserver.(*EtcdServer).processInternalRaftRequestOnce (etcdserver.go:1123): "
        "96 % of the time of requests.",
        "Tasks in the container waited for disks 56 % of the time.",
    )
    assert finding.share
    assert round(finding.share, 2) == 0.63
    assert not finding.is_certain


def test_a_disk_that_is_fast_enough_is_no_fault() -> None:
    assert not list(rule.find(etcd(on_disk=0.12)))
    assert not list(rule.find(etcd(age_ns=SHORT)))
    assert not list(rule.find(etcd(io=0.04)))


def test_requests_that_wait_for_events_do_not_wait_for_the_disk() -> None:
    assert not list(rule.find(etcd(is_standing=True)))
    other = (*SELECT, "example.com/shop/chat.(*room).poll:18")
    assert not list(rule.find(etcd(waiting=other)))


def nats(on_disk: float, behind: float) -> Evidence:
    """A program without known requests: its goroutines wait for a lock of the one on the disk."""
    loading = [
        dump(goroutine(3, "sync.RWMutex.RLock", *LOAD, waited_ns=LONG, wait=number))
        for number in range(6)
    ]
    return evidence(
        waits("syscall", *STORE, mean=on_disk),
        waits("sync.RWMutex.RLock", *LOAD, mean=behind),
        waits("sync.Cond.Wait", "sync.(*Cond).Wait", f"{NATS}.(*client).writeLoop:1444", mean=6),
        dumps=loading,
        host=stalled(0.59),
    )


def test_a_goroutine_that_only_waits_for_the_disk_while_others_wait_for_its_lock() -> None:
    (finding,) = rule.find(nats(1.0, 0.74))
    assert finding.title == (
        "Slow disk: server.(*stream).internalLoop waits for fsync 100 % of the time."
    )
    assert finding.lines[0] == (
        "0.7 goroutines wait for it, most likely, in server.(*fileStore).LoadNextMsg "
        "(filestore.go:9825)."
    )
    assert not list(rule.find(nats(0.6, 0.74)))
    assert not list(rule.find(nats(1.0, 0.1)))


def test_requests_that_wait_for_the_disk_themselves_are_reported_once() -> None:
    fsync = ("syscall.Syscall", "syscall.Fsync", "os.(*File).Sync", "main.(*desk).store:24")
    thread = ThreadWait(101, runs=False, call=SystemCall(0, "fsync", (), None))
    storing = goroutine(900, "syscall", *fsync, *HANDLER, waits_for=WaitsFor(thread=thread))
    background = etcd()
    of = evidence(
        waits("syscall", *fsync, *HANDLER, mean=8),
        *background.wall.samples,
        dumps=[
            dump(storing, *one.goroutines, at_s=number)
            for number, one in enumerate(background.dumps)
        ],
        host=stalled(0.56),
    )
    assert [finding.kind for finding in calls.find(of)] == ["slow_disk"]
    assert not list(rule.find(of))


def test_a_few_requests_on_the_disk_are_not_in_the_background() -> None:
    fsync = ("syscall.Syscall", "syscall.Fsync", f"{ETCD}/etcdserver.(*EtcdServer).store:24")
    background = etcd()
    samples = (waits("syscall", *fsync, *HANDLER, mean=0.9), *background.wall.samples[1:])
    of = evidence(*samples, dumps=background.dumps, host=stalled(0.56))
    assert not list(calls.find(of))
    assert not list(rule.find(of))
