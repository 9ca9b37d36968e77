"""TCP connections: which segments were lost."""

from __future__ import annotations

import pytest

from ebpfprof.profile.connections import TcpConnection


@pytest.mark.parametrize(
    ("resent", "needless", "lost"), [(0, 0, 0), (9, 2, 7), (9, 9, 0), (1, 9, 0)]
)
def test_what_was_sent_again_in_vain_was_not_lost(resent: int, needless: int, lost: int) -> None:
    assert TcpConnection("a", "b", 500, resent, needless).lost == lost
