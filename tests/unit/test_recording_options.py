"""Each verb offers the recording options that it can do something with."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from ebpfprof.cli import cli


@pytest.mark.parametrize(
    ("verb", "missing"),
    [("attach", []), ("run", []), ("top", ["--open"]), ("serve", ["--by-lock", "--open"])],
)
def test_only_what_the_verb_can_do_is_offered(verb: str, missing: list[str]) -> None:
    shown = CliRunner().invoke(cli, [verb, "--help"]).output
    offered = {each for each in ("--by-lock", "--open", "--hz", "--lock-labels") if each in shown}
    assert offered == {"--by-lock", "--open", "--hz", "--lock-labels"} - set(missing)
    for option in missing:
        refused = CliRunner().invoke(cli, [verb, "--pid", "1", option])
        assert refused.exit_code == 2
        assert f"No such option '{option}'" in refused.output
