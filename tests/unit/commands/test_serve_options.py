"""Options of `serve` that make no sense, or would let others in, are refused at once."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from ebpfprof.commands.cli import cli
from ebpfprof.errors import ExitCode


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--listen", "127.0.0.1:0"), "--all-go"),
        (("--pid", "1", "--listen", "0.0.0.0:0"), "--token-file"),
        (("--pid", "1", "--listen", "nonsense"), "unix:"),
        (("--pid", "1", "--token", "secret"), "auto"),
        (("--pid", "1", "--token-file", "/none"), "/none"),
        (("--pid", "1", "--token-file", "/dev/null"), "openssl"),
        (("--pid", "1", "--all-go"), "--all-go"),
        (("--pid", "1", "--window", "nan"), "--window"),
        (("--pid", "1", "--retention", "1"), "--retention"),
    ],
)
def test_senseless_options_are_refused(arguments: tuple[str, ...], words: str) -> None:
    done = CliRunner().invoke(cli, ["serve", *arguments])
    assert done.exit_code == ExitCode.USAGE
    assert words in done.output
