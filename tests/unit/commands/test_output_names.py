"""-o: the ending chooses the format, and each of several profiles gets its kind into the name."""

from __future__ import annotations

from pathlib import Path

import click
import pytest

from ebpfprof.commands.shared_options import format_for, require_one_for_stdout
from ebpfprof.console.output_file import named_for
from ebpfprof.export import formats
from ebpfprof.export.formats import DIFFERENCES, PROFILES, TIMELINES


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("x.pb.gz", "pprof"),
        ("x.prof", "pprof"),
        ("x.PPROF", "pprof"),
        ("x.html", "html"),
        ("x.json", "json"),
        ("x.speedscope.json", "speedscope"),
        ("x.txt", "text"),
        ("before", "pprof"),
        ("shop-1.2", "pprof"),
        ("-", "pprof"),
    ],
)
def test_the_ending_chooses(name: str, found: str) -> None:
    assert format_for(None, Path(name), default="pprof") == found


@pytest.mark.parametrize("name", ["x.svg", "x.gz", "x.tar.gz", "x.html5", "a/b.png"])
def test_an_unknown_ending_is_refused_with_those_that_there_are(name: str) -> None:
    with pytest.raises(click.UsageError) as refused:
        format_for(None, Path(name), default="text")
    output = refused.value.message
    assert output.startswith(f"{Path(name).name}: no format has this ending")
    assert all(formats.FORMATS[name].suffix in output for name in PROFILES)
    assert "-f" in output
    assert format_for("folded", Path(name), default="text") == "folded"


def test_a_format_that_a_verb_lacks_is_refused() -> None:
    with pytest.raises(click.UsageError) as refused:
        format_for(None, Path("x.speedscope.json"), default="text", formats=DIFFERENCES)
    assert "(html)" in refused.value.message
    assert "(speedscope)" not in refused.value.message


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("before", "before.block.pb.gz"),
        ("before.pb.gz", "before.block.pb.gz"),
        ("before.prof", "before.block.prof"),
        ("/tmp/a.b/before.pb.gz", "/tmp/a.b/before.block.pb.gz"),
        ("shop-1.2", "shop-1.2.block.pb.gz"),
    ],
)
def test_the_kind_stands_before_the_ending(name: str, found: str) -> None:
    made = formats.FORMATS["pprof"]
    assert str(named_for(Path(name), "block", made.suffix, made.endings)) == found


def test_standard_output_holds_one_profile() -> None:
    require_one_for_stdout(Path("-"), 1)
    require_one_for_stdout(Path("x"), 3)
    with pytest.raises(click.UsageError, match="takes one profile, not 3"):
        require_one_for_stdout(Path("-"), 3)


@pytest.mark.parametrize("name", PROFILES)
def test_idle_waits_are_hidden_where_people_read(name: str) -> None:
    assert formats.hides_idle(name, None) is (name in ("text", "html"))
    assert formats.hides_idle(name, False) is False
    assert formats.hides_idle(name, True) is (name not in ("pprof", "pgo"))


@pytest.mark.parametrize(
    ("name", "found"),
    [("x.trace", "go"), ("trace.out", "go"), ("x.pftrace", "perfetto"), ("x.html", "html")],
)
def test_the_ending_chooses_the_format_of_a_trace(name: str, found: str) -> None:
    assert format_for(None, Path(name), default="go", formats=TIMELINES) == found


@pytest.mark.parametrize("name", ["x.svg", "x.folded", "x.pb.gz"])
def test_a_trace_is_not_written_as_a_profile(name: str) -> None:
    with pytest.raises(click.UsageError, match=r"Use \.trace \(go\), \.perfetto-trace"):
        format_for(None, Path(name), default="go", formats=TIMELINES)
