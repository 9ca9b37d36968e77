"""Which Go runtime of a process is meant, and what is said if that is not clear."""

from __future__ import annotations

from typing import Any

import pytest

from ebpfprof.errors import NoSuchRuntime, NotGoProgram
from ebpfprof.goruntime.runtimes import GoRuntime, chosen, names_of

FIRST = GoRuntime("/opt/a/libfirst.so", 3, 0x1000)
SECOND = GoRuntime("/opt/a/libsecond.so", 4, 0x2000)
NAMESAKE = GoRuntime("/opt/b/libfirst.so", 5, 0x3000)


class _Process:
    pid, name = 12, "python3"


TARGET: Any = _Process()


@pytest.mark.parametrize("name", ["libsecond.so", "/opt/a/libsecond.so"])
def test_a_name_or_a_path_chooses(name: str) -> None:
    assert chosen(TARGET, (FIRST, SECOND, NAMESAKE), name) is SECOND


def test_the_only_one_needs_no_choice() -> None:
    assert chosen(TARGET, (FIRST,), None) is FIRST


def test_several_are_named_by_the_shortest_names_that_choose() -> None:
    assert names_of((FIRST, SECOND)) == ("libfirst.so", "libsecond.so")
    assert names_of((FIRST, NAMESAKE)) == ("/opt/a/libfirst.so", "/opt/b/libfirst.so")
    with pytest.raises(NotGoProgram) as raised:
        chosen(TARGET, (FIRST, SECOND), None)
    assert str(raised.value) == (
        "Process 12 (python3) has several Go runtimes, in libfirst.so and libsecond.so: choose one "
        "with --runtime. Only --profile cpu needs no choice."
    )


def test_a_name_of_two_files_needs_the_path() -> None:
    with pytest.raises(NotGoProgram, match=r"in /opt/a/libfirst.so and /opt/b/libfirst.so: choose"):
        chosen(TARGET, (FIRST, SECOND, NAMESAKE), "libfirst.so")


@pytest.mark.target(
    "one Go library that a process has mapped twice (dlmopen)",
    "CPU profile: probes in the file would count both",
)
@pytest.mark.parametrize("name", [None, "libfirst.so"])
def test_a_file_that_is_mapped_twice_is_refused(name: str | None) -> None:
    twice = GoRuntime(FIRST.path, FIRST.fd, 0x9000)
    with pytest.raises(NotGoProgram, match=r"/opt/a/libfirst.so twice, so probes would count both"):
        chosen(TARGET, (FIRST, twice), name)


def test_a_name_that_nothing_has_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(NoSuchRuntime) as raised:
        chosen(TARGET, (FIRST, SECOND), "libthird.so")
    assert str(raised.value) == (
        "No file called libthird.so with a Go runtime is mapped in process 12 (python3). It has "
        "one in libfirst.so and libsecond.so."
    )
    with pytest.raises(NoSuchRuntime, match=r"is mapped in process 12 \(python3\)\.$"):
        chosen(TARGET, (), "libthird.so")
