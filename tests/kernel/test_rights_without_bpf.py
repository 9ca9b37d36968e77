"""Profiles that read memory only: they need no right to use BPF."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from ebpfprof.errors import ExitCode
from ebpfprof.export import pprof
from tests.kernel.users import by_user, ebpfprof, folder_of, open_checkout, process_of
from tests.kernel.verbs import Said, verb
from tests.targets_run import Target

OWNER = 12345
USER = 23456


@pytest.fixture(scope="module")
def checkout() -> Iterator[Path]:
    with open_checkout() as folder:
        yield folder


@pytest.fixture(scope="module")
def owners() -> Iterator[Target]:
    with process_of(OWNER) as target:
        yield target


@pytest.fixture
def folder() -> Iterator[Path]:
    with folder_of(USER) as path:
        yield path


def run(
    checkout: Path, folder: Path, name: str, *arguments: str, uid: int = USER, rights: Sequence[str]
) -> Said:
    """A verb run by a user with these rights."""
    command = (*by_user(uid, rights), *ebpfprof(checkout, name))
    return verb(*arguments, command=command, folder=folder)


def test_reading_memory_is_enough_for_profiles_without_bpf(
    checkout: Path, owners: Target, folder: Path
) -> None:
    output = run(
        *(checkout, folder, "attach", "--pid", str(owners.pid), "--duration", "0.5"),
        *("--profile", "wall,goroutine"),
        rights=("sys_ptrace", "dac_read_search"),
    )
    assert output.code == ExitCode.OK, output.stderr
    profiles = {
        path.name.split(".")[1]: pprof.decode(path.read_bytes()) for path in folder.iterdir()
    }
    assert profiles.keys() == {"wall", "goroutine"}
    assert all(profile.samples for profile in profiles.values())
    # Together with a kind that takes BPF, what that lacks is named.
    output = run(
        *(checkout, folder, "attach", "--pid", str(owners.pid), "--profile", "wall,block"),
        rights=("sys_ptrace", "dac_read_search"),
    )
    assert output.code == ExitCode.PERMISSION_DENIED
    assert "missing" in output.stderr


def test_no_right_is_enough_for_profiles_without_bpf_of_the_users_own(
    checkout: Path, owners: Target, folder: Path
) -> None:
    os.chown(folder, OWNER, OWNER)
    output = run(
        *(checkout, folder, "attach", "--pid", str(owners.pid), "--duration", "0.3"),
        *("--profile", "wall"),
        uid=OWNER,
        rights=(),
    )
    assert output.code == ExitCode.OK, output.stderr
