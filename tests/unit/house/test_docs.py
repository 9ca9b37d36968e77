"""The pages of the command line say what the command line is."""

from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from ebpfprof.commands.cli import VERBS, cli
from ebpfprof.errors import ExitCode
from tests.tools.generate_docs import COMMANDS, MANUAL, ROOT, documents, verb


def test_pages_are_up_to_date() -> None:
    written = {path.relative_to(ROOT) for path in (ROOT / COMMANDS).glob("*.md")}
    expected = documents()
    assert written | {MANUAL} == set(expected), "run python -m tests.tools.generate_docs"
    stale = [path for path, text in expected.items() if (ROOT / path).read_text() != text]
    assert stale == [], "run python -m tests.tools.generate_docs"


@pytest.mark.parametrize("name", VERBS)
def test_every_verb_has_examples_that_it_understands(name: str) -> None:
    examples = [line for line in verb(name).examples if f"ebpfprof {name}" in line]
    assert len(examples) >= 2
    context = click.Context(cli, info_name="ebpfprof")
    command = cli.get_command(context, name)
    assert command is not None
    known = {typed for param in command.params for typed in (*param.opts, *param.secondary_opts)}
    for example in examples:
        _, _, rest = example.partition(f"ebpfprof {name}")
        words = shlex.split(re.split(r"[|>)]", rest)[0], comments=True)
        ours = words[: words.index("--")] if "--" in words else words
        options = {word.split("=")[0] for word in ours if re.match("--?[a-z]", word)}
        assert options <= known, example


def test_the_help_of_all_shows_verbs_examples_and_exit_codes() -> None:
    shown = CliRunner().invoke(cli, ["-h"], terminal_width=100).output
    for name in VERBS:
        assert verb(name).short in " ".join(shown.split())
    examples = re.findall("^ +(?:sudo )?ebpfprof ([a-z]+) ", shown, re.MULTILINE)
    assert len(examples) >= 5
    assert set(examples) <= set(VERBS)
    codes = shown[shown.index("Exit codes:") : shown.index("Options:")]
    assert {int(number) for number in re.findall(r"(?<= )\d+(?= )", codes)} == set(ExitCode)


@pytest.mark.parametrize("name", VERBS)
def test_the_short_option_for_help_is_understood(name: str) -> None:
    result = CliRunner().invoke(cli, [name, "-h"])
    assert result.exit_code == 0
    assert result.output.startswith(f"Usage: cli {name} ")


def test_exit_codes_are_those_that_a_verb_can_end_with() -> None:
    codes = {name: {code for code, _ in verb(name).exit_codes} for name in VERBS}
    assert codes["run"] == set(ExitCode)
    assert codes["run"] - codes["attach"] == {126, 127}
    assert codes["report"] == codes["diff"] == {0, 1, 2, 9, 130}


@pytest.mark.parametrize("name", VERBS)
def test_every_option_says_what_it_is_for(name: str) -> None:
    options = verb(name).options
    assert [option.typed for option in options if not option.text] == []
    assert any(option.typed == "-h, --help" for option in options)


def test_the_manual_page_is_good_roff(tmp_path: Path) -> None:
    done = subprocess.run(
        ["groff", "-man", "-Tutf8", "-ww", "-z", ROOT / MANUAL],
        capture_output=True,
        text=True,
        check=True,
        cwd=tmp_path,
    )
    assert done.stderr == ""
    shown = subprocess.run(
        ["groff", "-man", "-Tascii", "-P-cbou", ROOT / MANUAL],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    for name in VERBS:
        assert f"ebpfprof {name}" in shown
    assert "--block-rate NS" in shown
    assert "sudo ebpfprof attach --pid 1234" in shown


def test_links_in_the_docs_lead_somewhere() -> None:
    for path in (ROOT / "docs").rglob("*.md"):
        for link in re.findall(r"\]\(([^)#]+)[^)]*\)", path.read_text()):
            assert "://" in link or (path.parent / link).exists(), f"{path}: {link}"
