"""Write the pages of the verbs (docs/commands), the manual page, the chart's schema, thresholds,
and the table of builds.

    python -m tests.tools.generate_docs

They are generated from the code: the help of each verb and option, the settings of the agent,
ExitCode, markers of tests. tests/unit/house/test_docs.py fails if they are out of date.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from pathlib import Path

import click

import ebpfprof
from ebpfprof.commands.cli import cli
from ebpfprof.commands.verb import VERBS
from ebpfprof.errors import ExitCode
from tests.tools import agent_docs, chart_schema, target_table, thresholds_page

ROOT = Path(__file__).parents[2]
COMMANDS = Path("docs/commands")
MANUAL = Path("docs/ebpfprof.1")

_WIDTH = 200
_EXAMPLES = "Examples:"
_ONLY_OF_RUN = {ExitCode.COMMAND_NOT_RUNNABLE, ExitCode.COMMAND_NOT_FOUND}
_ONLY_OF_DOCTOR = {ExitCode.DEADLOCK_FOUND}
_OF_FILES = {
    ExitCode.OK,
    ExitCode.FAILURE,
    ExitCode.USAGE,
    ExitCode.OUTPUT_ERROR,
    ExitCode.ABORTED,
}
_OF_READING = (
    set(ExitCode)
    - _ONLY_OF_RUN
    - _ONLY_OF_DOCTOR
    - {ExitCode.BCC_MISSING, ExitCode.ATTACH_FAILED, ExitCode.KERNEL_UNSUPPORTED}
)
_EXIT_CODES = {
    "run": set(ExitCode) - _ONLY_OF_DOCTOR,
    "list": _OF_FILES | {ExitCode.KERNEL_UNSUPPORTED},
    "dump": _OF_READING,
    "memory": _OF_READING,
    "report": _OF_FILES,
    "diff": _OF_FILES,
    "history": _OF_FILES | {ExitCode.PERMISSION_DENIED},
    "doctor": set(ExitCode) - _ONLY_OF_RUN,
    "completion": _OF_FILES,
}
"""By verb; the others have all but those of `run` and `doctor` alone."""
_STATUS_OF_RUN = "{} exits with the program's own status, unless recording failed."
_ENVIRONMENT = {
    "EBPFPROF_DEBUG": "1: show a traceback if the error is a bug.",
    "NO_COLOR": "Not empty: no colours.",
    "PAGER": "The pager for a long dump in a terminal; `cat`: no pager. With sudo it is less.",
    "SUDO_UID, SUDO_GID": "The owner and group of the files that ebpfprof writes as root.",
}

_DEFAULTS = (
    "Each option can have another default. The order of precedence is: the command line, the "
    "environment, ~/.config/ebpfprof/config.toml, /etc/ebpfprof/config.toml. Under sudo, ~ is the "
    "home of the user who called sudo.",
    "A variable is named after its option: EBPFPROF_MAX_OVERHEAD for --max-overhead. A switch is 1 "
    "or 0: EBPFPROF_KERNEL=0 is --no-kernel. By default sudo drops variables: type sudo "
    "EBPFPROF_DURATION=1m ebpfprof attach 1234.",
    "A key of a file is an option without its dashes. Keys above all tables apply to every verb "
    "that has the option; a table applies to the verb of its name, and takes precedence.",
    "user-config = false in /etc/ebpfprof/config.toml ignores users' files: for a sudoers rule "
    "that allows a user only some commands.",
    "A file must be a regular file of root or of that user, of at most 64 KiB, and not writable by "
    "all users. ebpfprof follows no symbolic link between / or the home and the file. An unknown "
    "key or a wrong value ends ebpfprof with exit code 2. If the command line selects processes, "
    "or one of several options that exclude each other, defaults of the others are ignored.",
)
CONFIG = (
    'duration = "1m"',
    "max-overhead = 0.5",
    "",
    "[attach]",
    'profile = ["block", "mutex"]',
    "hide-idle = true",
    "",
    "[serve]",
    'listen = "127.0.0.1:7070"',
)
"""An example that tests/unit/commands/test_defaults.py reads."""


@dataclass(frozen=True)
class Option:
    """An option as it is typed, and what it is for."""

    typed: str
    text: str


@dataclass(frozen=True)
class Verb:
    """What the help of a verb says. `examples` are lines to type."""

    name: str
    short: str
    usage: str
    paragraphs: tuple[str, ...]
    examples: tuple[str, ...]
    options: tuple[Option, ...]
    exit_codes: tuple[tuple[int, str], ...]


def verb(name: str) -> Verb:
    """Read a verb's help. Raises ValueError if a passage is neither text nor examples."""
    settings = {"info_name": "ebpfprof", "terminal_width": _WIDTH, **cli.context_settings}
    above = click.Context(cli, **settings)
    command = cli.get_command(above, name)
    assert command is not None
    context = click.Context(command, info_name=name, parent=above, terminal_width=_WIDTH)
    first, *passages = inspect.cleandoc(command.help or "").split("\n\n")
    paragraphs, examples = [], []
    for passage in passages:
        if not passage.startswith("\b\n"):
            paragraphs.append(" ".join(passage.split()))
            continue
        heading, *lines = passage.splitlines()[1:]
        if heading != _EXAMPLES:
            raise ValueError(f"{name}: what is {heading!r}?")
        examples += [line.strip() for line in lines]
    records = [
        param.get_help_record(context)
        for param in command.get_params(context)
        if isinstance(param, click.Option)  # the text describes arguments
    ]
    return Verb(
        name,
        " ".join(first.split()),
        " ".join(command.get_usage(context).removeprefix("Usage:").split()),
        tuple(paragraphs),
        tuple(examples),
        tuple(Option(typed, " ".join(text.split())) for typed, text in filter(None, records)),
        tuple(exit_codes(_EXIT_CODES.get(name, set(ExitCode) - _ONLY_OF_RUN - _ONLY_OF_DOCTOR))),
    )


def exit_codes(wanted: AbstractSet[ExitCode]) -> list[tuple[int, str]]:
    """These exit codes and what they mean."""
    return [(int(code), code.meaning) for code in ExitCode if code in wanted]


def page(of: Verb) -> str:
    """A verb's page in Markdown."""
    lines = [f"# ebpfprof {of.name}", "", _markdown(of.short), "", "    " + of.usage, ""]
    for paragraph in of.paragraphs:
        lines += [_markdown(paragraph), ""]
    lines += ["## Examples", "", *("    " + line for line in of.examples), ""]
    lines += ["## Options", ""]
    lines += [f"- `{option.typed}`: {_markdown(option.text)}" for option in of.options]
    lines += ["", "## Exit codes", "", "| code | meaning |", "|---|---|"]
    lines += [f"| {code} | {_markdown(meaning)} |" for code, meaning in of.exit_codes]
    lines += ["", "[All verbs](README.md)"]
    return "\n".join(lines) + "\n"


def index(verbs: list[Verb]) -> str:
    """The page that leads to those of the verbs, with what all of them have in common."""
    lines = ["# The command line", "", "    ebpfprof VERB [OPTIONS] ...", ""]
    lines += ["| verb | what it does |", "|---|---|"]
    lines += [f"| [{each.name}]({each.name}.md) | {_markdown(each.short)} |" for each in verbs]
    lines += [
        "",
        "`ebpfprof VERB --help-all` says the same; `man -l docs/ebpfprof.1` has all of it.",
    ]
    lines += ["", "## Exit codes", "", "| code | meaning |", "|---|---|"]
    lines += [f"| {code} | {_markdown(text)} |" for code, text in exit_codes(set(ExitCode))]
    lines += ["", _STATUS_OF_RUN.format("`ebpfprof run`")]
    lines += ["", "## Environment", "", "| variable | what it does |", "|---|---|"]
    lines += [f"| {_code(name)} | {_markdown(text)} |" for name, text in _ENVIRONMENT.items()]
    lines += ["", "## Defaults"]
    for paragraph in _DEFAULTS:
        lines += ["", _markdown(paragraph)]
    lines += ["", *("    " + line if line else "" for line in CONFIG)]
    return "\n".join(lines) + "\n"


def manual(verbs: list[Verb]) -> str:
    """The manual page of the command, with all its verbs, in roff's man macros."""
    lines = [
        '.\\" Written by tests/tools/generate_docs.py; not to be edited.',
        f'.TH EBPFPROF 1 "" "ebpfprof {ebpfprof.__version__}" "User Commands"',
        ".SH NAME",
        f"ebpfprof \\- {_roff(_first_words(cli.help or ''))}",
        ".SH SYNOPSIS",
        *(f"{_bold('ebpfprof ' + each.name)}{_roff(_after_verb(each))}\n.br" for each in verbs),
        ".SH DESCRIPTION",
        ".B ebpfprof",
        "writes the block, mutex and CPU profiles of running Go programs, as Go's own runtime",
        "would have written them. It attaches from outside, with eBPF: the program needs no",
        "change, no restart and no net/http/pprof.",
        ".PP",
        "By default, waits are estimated: if recording every wait would cost more than 1 % of the",
        "program's CPU time, ebpfprof records short windows at random times and scales them up.",
        "For waits of microseconds, for bursts and for goroutines that hang, the error is much",
        "larger than the reported standard error. With",
        ".B \\-\\-max\\-overhead 0",
        "every wait is recorded and the profile is exact.",
        ".SH VERBS",
    ]
    described: dict[Option, str] = {}
    lines += [f"{_bold('ebpfprof')} VERB {_bold('--help-all')} shows the options of a verb."]
    for each in verbs:
        lines += [f".SS {each.name}", _roff(each.short)]
        for paragraph in each.paragraphs:
            lines += [".PP", _roff(paragraph)]
        options = [option for option in each.options if not _long(option).startswith("--help")]
        for option in options:
            if option not in described:
                lines += [".TP", _bold(option.typed), _roff(option.text)]
        again = [option for option in options if option in described]
        for verb_name in dict.fromkeys(described[option] for option in again):
            names = [_long(option) for option in again if described[option] == verb_name]
            lines += [".PP", f"As for {_bold(verb_name)}: {_roff(', '.join(names))}."]
        described |= {option: each.name for option in options if option not in described}
        lines += [".PP", _EXAMPLES, ".PP", ".nf", ".RS", *map(_roff, each.examples), ".RE", ".fi"]
    lines += [".SH ENVIRONMENT"]
    for name, meaning in _ENVIRONMENT.items():
        lines += [".TP", _bold(name), _roff(meaning)]
    lines += [".SH DEFAULTS", *_roff_paragraphs(_DEFAULTS)]
    lines += [".PP", ".nf", ".RS", *(_roff(line) or ".sp" for line in CONFIG), ".RE", ".fi"]
    lines += [".SH EXIT STATUS"]
    for code, meaning in exit_codes(set(ExitCode)):
        lines += [".TP", _bold(str(code)), _roff(meaning)]
    lines += [".PP", _STATUS_OF_RUN.format(_bold("ebpfprof run"))]
    lines += [".SH SEE ALSO", ".BR perf (1),", ".BR bpftrace (8),", ".B go tool pprof"]
    return "\n".join(lines) + "\n"


def documents() -> dict[Path, str]:
    """Each file to write, by its path from the root of the repository."""
    verbs = [verb(name) for name in VERBS]
    pages = {COMMANDS / f"{each.name}.md": page(each) for each in verbs}
    pages[agent_docs.PAGE] = agent_docs.settings_page()
    pages[chart_schema.FILE] = chart_schema.text()
    pages[thresholds_page.PAGE] = thresholds_page.thresholds_page()
    pages[target_table.PAGE] = target_table.page()
    return {**pages, COMMANDS / "README.md": index(verbs), MANUAL: manual(verbs)}


def _markdown(text: str) -> str:
    """Plain text so that Markdown shows it as it is."""
    return re.sub(r"([\\`*_<|\[\]])", r"\\\1", text)


def _code(names: str) -> str:
    """Names between commas, each as code in Markdown."""
    return ", ".join(f"`{name}`" for name in names.split(", "))


def _roff(text: str) -> str:
    """Plain text so that roff shows it as it is."""
    escaped = text.replace("\\", "\\e").replace("-", "\\-").replace("'", "\\(aq")
    escaped = escaped.replace("`", "\\(ga").replace("^", "\\(ha").replace("~", "\\(ti")
    return "\\&" + escaped if escaped.startswith(".") else escaped


def _roff_paragraphs(paragraphs: Iterable[str]) -> list[str]:
    return [line for paragraph in paragraphs for line in (".PP", _roff(paragraph))]


def _bold(text: str) -> str:
    return f"\\fB{_roff(text)}\\fR"


def _first_words(text: str) -> str:
    first = text.strip().split("\n")[0].rstrip(".")
    return first[:1].lower() + first[1:]


def _after_verb(of: Verb) -> str:
    return of.usage.removeprefix(f"ebpfprof {of.name}")


def _long(option: Option) -> str:
    """The long name of an option alone."""
    return next(iter(re.findall(r"--[a-z-]+", option.typed)), option.typed)


def main() -> int:
    """Write what differs; return the exit status."""
    for path, text in documents().items():
        target = ROOT / path
        if not target.exists() or target.read_text() != text:
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text)
            print(path)
    for stale in (ROOT / COMMANDS).glob("*.md"):
        if stale.relative_to(ROOT) not in documents():
            stale.unlink()
            print("removed", stale.relative_to(ROOT))
    return 0


if __name__ == "__main__":
    sys.exit(main())
