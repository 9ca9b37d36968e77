"""A profile as one HTML file with a flame graph and other views; it needs no network.

It shares its scripts and styles with the page of `serve` (ebpfprof/web). The file holds names from
the target only as JSON, which browsers don't parse as markup. Its content security policy lets
browsers run only the scripts that are ours, or bundled by us.

standalone.js reads the JSON of the profile from #profile, and that of a base to compare with from
#base. If <main id="app"> has the attribute data-hide-idle, it hides idle waits at first.
"""

import base64
import hashlib
import html
from collections.abc import Mapping
from importlib.resources import files
from typing import Any

from ebpfprof.console.text import printable
from ebpfprof.export.json_profile import document, dumped
from ebpfprof.export.kinds import title
from ebpfprof.profile.model import Profile

_SCRIPTS = (
    "vendor/dagre.min.js",
    "elements.js",
    "units.js",
    "flametext.js",
    "flametree.js",
    "flamecanvas.js",
    "flamelegend.js",
    "flamegraph.js",
    "sandwich.js",
    "callgraph.js",
    "sourceview.js",
    "tables.js",
    "viewstate.js",
    "profileview.js",
    "theme.js",
    "standalone.js",
)
_STYLES = ("flamegraph.css", "style.css", "profileview.css")


def encode(
    profile: Profile,
    *,
    index: int = -1,
    base: Profile | None = None,
    hide_idle: bool = False,
    sources: Mapping[str, Any] | None = None,
) -> bytes:
    """The profile as a page with a flame graph; with `base`, the change from `base` to it.

    `index` selects the sample type to show first. With `hide_idle` the page hides idle waits at
    first; the user can show them again. `sources` are the texts of files, by the paths that the
    profile names (sourceview.js says how).
    """
    script = "\n".join(_asset(name) for name in _SCRIPTS)
    style = "\n".join(_asset(name) for name in _STYLES)
    name = html.escape(printable(title(profile)), quote=True)
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
        f'<main id="app"{" data-hide-idle" if hide_idle else ""}></main>',
        "<noscript>The flame graph is drawn by a script, which this browser does not run."
        "</noscript>",
        _data("profile", document(profile, default=index)),
        *([_data("base", document(base, default=index))] if base else []),
        *([_data("sources", dict(sources))] if sources else []),
        f"<script>{script}</script>",
        "</body>",
        "</html>",
    ]
    return ("\n".join(parts) + "\n").encode()


def _data(name: str, content: dict[str, Any]) -> str:
    # Without "<" the text can neither end the script element nor begin a comment.
    text = dumped(content).decode("ascii").replace("<", "\\u003c")
    return f'<script type="application/json" id="{name}">{text}</script>'


def _asset(name: str) -> str:
    return files("ebpfprof").joinpath("web", name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return f"sha256-{base64.b64encode(digest).decode('ascii')}"
