"""The flame graph in one file: nothing in it but what is ours runs or loads."""

import base64
import hashlib
import json
import re
from collections.abc import Callable
from dataclasses import replace
from html.parser import HTMLParser
from typing import Any

import pytest

from ebpfprof.export import flamegraph, formats, json_profile
from ebpfprof.profile.model import Profile
from tests.unit.export.profiles import HEAP, IDLE, NASTY, nasty
from tests.unit.export.small_profile import SMALL


class Page(HTMLParser):
    """What a browser takes a flame graph for."""

    def __init__(self, data: bytes) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self._inside: list[str] = []
        self.feed(data.decode("utf-8"))
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self.texts.append("")

    def handle_data(self, data: str) -> None:
        if self.texts:
            self.texts[-1] += data

    def document(self, name: str) -> Any:  # noqa: ANN401 - JSON
        ((_, text),) = [
            (tag, text)
            for (tag, attributes), text in zip(self.tags, self.texts, strict=True)
            if attributes.get("id") == name
        ]
        return json.loads(text)

    @property
    def main(self) -> dict[str, str | None]:
        (attributes,) = [attributes for tag, attributes in self.tags if tag == "main"]
        return attributes

    @property
    def policy(self) -> str:
        (policy,) = [
            attributes["content"]
            for _, attributes in self.tags
            if attributes.get("http-equiv") == "Content-Security-Policy"
        ]
        assert policy is not None
        return policy


@pytest.mark.parametrize("encode", [flamegraph.encode, lambda p: flamegraph.encode(p, base=p)])
def test_no_name_breaks_out_of_the_page(encode: Callable[[Profile], bytes]) -> None:
    plain, odd = Page(encode(SMALL)), Page(encode(nasty()))
    assert [tag for tag, _ in odd.tags] == [tag for tag, _ in plain.tags]
    clean = NASTY.replace("\udcff", "\\udcff")
    assert clean in odd.document("profile")["strings"]
    (title,) = [text for (tag, _), text in zip(odd.tags, odd.texts, strict=True) if tag == "title"]
    assert "script><!--<script>" in title
    assert title.strip().isprintable()


def test_the_page_loads_nothing_and_runs_only_its_own_script() -> None:
    page = Page(flamegraph.encode(SMALL))
    assert page.policy.startswith("default-src 'none'; script-src 'sha256-")
    assert "unsafe" not in page.policy
    for tag, attributes in page.tags:
        assert tag not in ("link", "img", "iframe", "base", "object")
        assert not {"src", "href", "style"} & attributes.keys()
        assert not any(name.startswith("on") for name in attributes)
    scripts = [attributes for tag, attributes in page.tags if tag == "script"]
    documents = [{"type": "application/json", "id": name} for name in ("profile", "summary")]
    assert scripts == [*documents, {}]


def test_the_policy_allows_the_script_and_the_style_by_their_hashes() -> None:
    data = flamegraph.encode(SMALL).decode()
    for element, rule in (("script", "script-src"), ("style", "style-src")):
        (text,) = re.findall(rf"<{element}>(.*?)</{element}>", data, re.S)
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"{rule} 'sha256-{digest}'" in data


def test_a_difference_has_both_profiles() -> None:
    base = replace(SMALL, samples=SMALL.samples[:1])
    page = Page(formats.encode_difference(SMALL, base, "html"))
    assert len(page.document("profile")["stacks"]) == 2
    assert len(page.document("base")["stacks"]) == 1
    found = json.loads(formats.encode_difference(SMALL, base, "json"))
    assert found["format"] == "ebpfprof-difference-1"
    assert found["profile"] == page.document("profile")
    assert found["base"] == page.document("base")


def test_the_sample_type_is_shown_first() -> None:
    page = Page(formats.encode(HEAP, "html", sample_type="alloc_objects"))
    assert page.document("profile")["default"] == 0
    assert json.loads(formats.encode(HEAP, "json", sample_type="alloc_space"))["default"] == 1


def test_a_flame_graph_begins_with_idle_waits_hidden_if_asked() -> None:
    page = Page(formats.encode(IDLE, "html", hide_idle=True))
    assert page.document("profile") == json_profile.document(IDLE) | {
        "values": [[7, 700], [1, 4500]]
    }
    assert "data-hide-idle" in page.main
    assert "data-hide-idle" not in Page(formats.encode(IDLE, "html")).main
