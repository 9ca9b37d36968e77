"""The pages of the command line agree with the command line."""

from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from ebpfprof.commands.cli import cli
from ebpfprof.commands.verb import VERBS
from ebpfprof.errors import ExitCode
from tests.tools import chart_schema, target_table, thresholds_page
from tests.tools.generate_docs import COMMANDS, MANUAL, ROOT, documents, verb


def test_pages_are_up_to_date() -> None:
    written = {path.relative_to(ROOT) for path in (ROOT / COMMANDS).glob("*.md")}
    expected = documents()
    others = {MANUAL, chart_schema.FILE, thresholds_page.PAGE, target_table.PAGE}
    assert written | others == set(expected), "run python -m tests.tools.generate_docs"
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
    codes = shown[shown.index("Exit codes:") :]
    assert re.findall(r"^ +(\d+) +(\S.*)$", codes, re.MULTILINE) == [
        (str(int(code)), code.meaning) for code in ExitCode
    ]


@pytest.mark.parametrize("name", VERBS)
def test_the_short_option_for_help_is_understood(name: str) -> None:
    result = CliRunner().invoke(cli, [name, "-h"])
    assert result.exit_code == 0
    assert result.output.startswith(f"Usage: cli {name} ")


def test_verbs_document_their_possible_exit_codes() -> None:
    codes = {name: {code for code, _ in verb(name).exit_codes} for name in VERBS}
    assert codes["run"] == set(ExitCode) - {14}
    assert codes["doctor"] == set(ExitCode) - {126, 127}
    assert codes["run"] - codes["attach"] == {126, 127}
    assert codes["report"] == codes["diff"] == {0, 1, 2, 9, 130}


@pytest.mark.parametrize("name", VERBS)
def test_every_option_says_what_it_is_for(name: str) -> None:
    options = verb(name).options
    assert [option.typed for option in options if not option.text] == []
    assert any(option.typed == "-h, --help" for option in options)


@pytest.mark.machine
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


def test_the_index_of_the_verbs_has_all_exit_codes_and_variables() -> None:
    codes, environment = (ROOT / COMMANDS / "README.md").read_text().split("## Environment")
    table = codes[codes.index("## Exit codes") :]
    found = re.findall(r"^\| (\d+) \| \S", table, re.MULTILINE)
    assert [int(code) for code in found] == sorted(ExitCode)
    shown = (ROOT / MANUAL).read_text()
    for name in ("EBPFPROF_DEBUG", "NO_COLOR", "SUDO_UID"):
        assert f"`{name}`" in environment
        assert name in shown


def pages() -> list[Path]:
    """All pages that people read."""
    return [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), ROOT / "changes" / "README.md"]


def anchors(page: Path) -> set[str]:
    """What GitHub calls the headings of a page in links."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    bare = [re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading) for heading in headings]
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in bare}


@pytest.mark.machine
def test_links_in_the_docs_lead_somewhere() -> None:
    links = 0
    for page in pages():
        for file, anchor in re.findall(r"\]\(([^)#\s]*)#?([^)\s]*)\)", page.read_text()):
            if "://" in file:
                continue
            there = page.parent / file if file else page
            assert there.exists(), f"{page}: {file}"
            if anchor:
                assert anchor in anchors(there), f"{page}: {file}#{anchor}"
            links += 1
    assert links > 100


def test_files_that_the_docs_name_exist() -> None:
    folders = "ebpfprof|symbolizer|bpf|tests|vagrant"
    named = [
        (page.name, file)
        for page in pages()
        for file in re.findall(
            rf"`((?:{folders})/[\w./-]+\.(?:py|h|c|toml|json))", page.read_text()
        )
    ]
    assert len(named) > 100
    assert [each for each in named if not (ROOT / each[1]).exists()] == []


@pytest.mark.machine
def test_all_pages_can_be_reached_from_the_readme() -> None:
    reached, new = set[Path](), {ROOT / "README.md"}
    while new:
        reached |= new
        links = {
            (page.parent / file).resolve()
            for page in new
            for file in re.findall(r"\]\(([^)#\s]+\.md)", page.read_text())
            if "://" not in file
        }
        new = links - reached
    assert {page.resolve() for page in pages()} == reached


def test_the_readme_says_early_how_exact_the_default_is() -> None:
    above, below = (ROOT / "README.md").read_text().split("## Install")
    for words in (
        "then one wait in eight",
        "`--max-overhead 0` records every wait",
        "within 10 % of Go's",
    ):
        assert words in above
    assert len(above) < len(below)


def test_the_words_of_the_glossary_are_in_order() -> None:
    text = (ROOT / "docs" / "glossary.md").read_text()
    words = [word.lower() for word in re.findall(r"^\| ([^|-]+?) \|", text, re.MULTILINE)]
    assert words[0] == "word"
    assert words[1:] == sorted(words[1:])
