"""The exit codes are an interface: each error keeps its own."""

import inspect

import pytest

from ebpfprof import errors
from ebpfprof.errors import BccMissing, EbpfprofError, ExitCode

CODES = {
    "EbpfprofError": 1,
    "InvalidProfile": 1,
    "RingError": 1,
    "TooManyFiles": 1,
    "BadConfig": 2,
    "NoSuchRuntime": 2,
    "NoSuchProcess": 3,
    "PermissionDenied": 4,
    "NotGoProgram": 5,
    "UnsupportedGo": 6,
    "UnsupportedTarget": 7,
    "TargetGone": 8,
    "OutputError": 9,
    "KernelUnsupported": 10,
    "BccMissing": 11,
    "CorruptBinary": 12,
    "AttachFailed": 13,
    "DeadlockFound": 14,
    "FaultFound": 15,
    "CommandNotRunnable": 126,
    "CommandNotFound": 127,
    "Aborted": 130,
}


def error_classes() -> dict[str, type[EbpfprofError]]:
    return {
        name: value
        for name, value in vars(errors).items()
        if inspect.isclass(value) and issubclass(value, EbpfprofError)
    }


def test_each_error_has_its_own_exit_code() -> None:
    assert {name: int(kind.exit_code) for name, kind in error_classes().items()} == CODES


def test_each_exit_code_has_a_meaning() -> None:
    assert all(code.meaning.endswith(".") and len(code.meaning) < 72 for code in ExitCode)
    assert len({code.meaning for code in ExitCode}) == len(ExitCode)


def test_every_exit_code_but_success_belongs_to_an_error() -> None:
    of_errors = {kind.exit_code for kind in error_classes().values()}
    assert set(ExitCode) - of_errors == {ExitCode.OK}
    assert (ExitCode.OK, ExitCode.USAGE) == (0, 2)


@pytest.mark.parametrize("kind", error_classes().values())
def test_an_error_shows_the_message_it_was_made_with(kind: type[EbpfprofError]) -> None:
    assert str(kind("The way out.")) == "The way out."


def test_bcc_missing_names_the_packages_and_warns_of_the_wrong_one() -> None:
    message = str(BccMissing())
    assert "apt-get install python3-bpfcc" in message
    assert "dnf install python3-bcc" in message
    assert "PyPI" in message
