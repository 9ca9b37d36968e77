"""What tests of `ebpfprof top` share."""

from tests.unit.made_up_kinds import made_up  # noqa: F401 - a fixture
