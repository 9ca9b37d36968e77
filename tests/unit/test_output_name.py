"""The default name of the output file, of which the target has a say."""

import pytest

from ebpfprof.output import default_name


@pytest.mark.parametrize(
    ("command", "name"),
    [
        ("api", "api-7.block.pb.gz"),
        ("../../etc/x", "_.._etc_x-7.block.pb.gz"),
        ("-rf", "rf-7.block.pb.gz"),
        (".hidden", "hidden-7.block.pb.gz"),
        ("a b\n\x1b[31m", "a_b___31m-7.block.pb.gz"),
        ("größe", "gr__e-7.block.pb.gz"),
        ("...", "process-7.block.pb.gz"),
        ("", "process-7.block.pb.gz"),
        ("n" * 500, "n" * 64 + "-7.block.pb.gz"),
    ],
)
def test_the_name_made_from_the_targets_command_is_harmless(command: str, name: str) -> None:
    assert default_name(command, 7, "block") == name
