"""Which goroutines of a real program can use a channel."""

from __future__ import annotations

import pytest

from ebpfprof.goruntime.waits.dump import GoroutineDumper
from ebpfprof.process.process import Target as Process
from tests.builds import in_full
from tests.go_target import inspect
from tests.kernel.programs import program
from tests.targets_run import Target

LOCKERS = {"main.receive", "main.follow", "main.visit"}


@pytest.mark.parametrize("minor", [*in_full("1.19", "1.22", "1.25"), "1.27"])
def test_those_with_the_channel_or_an_object_that_has_it(minor: str) -> None:
    with (
        Target.start(program("channelusers", minor)) as target,
        Process(target.pid) as process,
    ):
        dumper = GoroutineDumper(inspect(process))
        starts: dict[str, int] = {}
        while not starts.keys() >= LOCKERS:  # until all have begun to wait
            dump = dumper.dump_once()
            starts = {
                one.frames[-1].function: one.goid
                for one in dump.goroutines
                if one.state not in ("running", "runnable") and one.frames
            }
        (channel,) = {
            channel.address
            for one in dump.goroutines
            if one.state == "chan send"
            for channel in one.channels
        }
        users = set(dumper.channel_users({channel})[channel])
    sender = next(one.goid for one in dump.goroutines if one.state == "chan send")
    assert users - {sender} == {starts["main.receive"], starts["main.follow"]}
