"""Handlers of servers with real frameworks, built and recorded now."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

from ebpfprof.export import pprof
from ebpfprof.profile.handlers import handler_in, handler_label
from tests.faults.programs import built_module
from tests.handlers.stacks import FRAMEWORKS, MODULES, parsed, recorded_stacks, saved_stacks
from tests.recorder import run
from tests.targets_run import Target

pytestmark = pytest.mark.full


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_saved_stacks_show_the_handlers_of_servers_that_run_now(framework: str) -> None:
    now = Counter(map(handler_in, parsed(recorded_stacks(framework))))
    assert now == Counter(map(handler_in, saved_stacks(framework)))


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_recordings_of_each_kind_have_the_handlers(framework: str, tmp_path: Path) -> None:
    handlers = {handler_in(stack) for stack in saved_stacks(framework)} - {None}
    expected = {handler.function for handler in handlers if handler}
    server = built_module("servers", MODULES)
    with Target.start(server, framework) as target:
        kinds = ("--profile", "block,wall", "--by-handler", "--duration", "2")
        finished = run("--pid", str(target.pid), *kinds, "-o", "x", folder=tmp_path)
    assert finished.code == 0, finished.stderr
    for kind in ("block", "wall"):
        profile = pprof.decode((tmp_path / f"x.{kind}.pb.gz").read_bytes())
        labels = {handler_label(sample) or "" for sample in profile.samples}
        named = {label for label in labels if label and not label.startswith("[")}
        assert expected <= {re.split(r" \(|: ", label)[0] for label in named}  # a place, a route
        if framework == "grpc":
            assert {"main.health.Check: Health/Check", "main.health.Watch: Health/Watch"} <= named
        # Closures have their place.
        assert all(".go:" in label for label in named if ".func" in label)
