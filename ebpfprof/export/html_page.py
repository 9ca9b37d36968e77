"""A page in one file that needs no network, of scripts and styles in ebpfprof/web.

It holds names from the target only as JSON, which browsers don't parse as markup. Its content
security policy lets browsers run only the scripts that are ours, or bundled by us.
"""

from __future__ import annotations

import base64
import hashlib
import html
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from ebpfprof.console.text import printable
from ebpfprof.export.json_profile import dumped

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


def html_page(
    title: str,
    *,
    scripts: Sequence[str],
    styles: Sequence[str],
    data: Mapping[str, Mapping[str, Any]],
    attributes: str = "",
) -> bytes:
    """The page. Scripts find each of `data` as JSON in the element with its name as id.

    `attributes` are those of <main id="app">, which scripts fill.
    """
    script = "\n".join(_asset(name) for name in scripts)
    style = "\n".join(_asset(name) for name in styles)
    name = html.escape(printable(title), quote=True)
    policy = (
        f"default-src 'none'; script-src '{_hash(script)}'; style-src '{_hash(style)}'; "
        "img-src data: blob:; base-uri 'none'; form-action 'none'"
    )
    parts = [
        "<!DOCTYPE html>",
        '<html lang="en">',
        "<head>",
        '<meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        '<meta name="referrer" content="no-referrer">',
        f"<title>{name}</title>",
        f"<style>{style}</style>",
        "</head>",
        "<body>",
        f'<main id="app"{" " if attributes else ""}{attributes}></main>',
        "<noscript>This page needs JavaScript, which this browser does not run.</noscript>",
        *(_data(name, content) for name, content in data.items()),
        f"<script>{script}</script>",
        "</body>",
        "</html>",
    ]
    return ("\n".join(parts) + "\n").encode()


def _data(name: str, content: Mapping[str, Any]) -> str:
    # Without "<" the text can neither end the script element nor begin a comment.
    text = dumped(dict(content)).decode("ascii").replace("<", "\\u003c")
    return f'<script type="application/json" id="{name}">{text}</script>'


def _asset(name: str) -> str:
    return files("ebpfprof").joinpath("web", name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return f"sha256-{base64.b64encode(digest).decode('ascii')}"
