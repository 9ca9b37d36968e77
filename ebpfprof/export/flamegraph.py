"""A flame graph as one HTML file that needs nothing else, and no network.

The program in it is that of our own page (ebpfprof/web). Names of the target are in it as JSON
only, which a browser does not take for markup; its policy lets nothing run but our own script.

What standalone.js finds: the JSON of the profile in #profile, that of the one to compare it with in
#base, if there is one; the attribute data-hide-idle on <main id="app"> if it is to begin so.
"""

import base64
import hashlib
import html
from importlib.resources import files
from typing import Any

from ebpfprof.console.text import printable
from ebpfprof.export.json_profile import document, dumped
from ebpfprof.export.kinds import title
from ebpfprof.profile.model import Profile

_SCRIPTS = ("flametree.js", "flamegraph.js", "standalone.js")
_STYLE = "flamegraph.css"


def encode(
    profile: Profile, *, index: int = -1, base: Profile | None = None, hide_idle: bool = False
) -> bytes:
    """The profile as a page with a flame graph; with `base`, of what has changed since that.

    `index` is the value type that it shows first; with `hide_idle` it begins with idle waits
    hidden, which can be shown again.
    """
    script = "\n".join(_asset(name) for name in _SCRIPTS)
    style = _asset(_STYLE)
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
        f"<script>{script}</script>",
        "</body>",
        "</html>",
    ]
    return ("\n".join(parts) + "\n").encode()


def _data(name: str, content: dict[str, Any]) -> str:
    # Without "<" there is no end of the script element and no comment in it.
    text = dumped(content).decode("ascii").replace("<", "\\u003c")
    return f'<script type="application/json" id="{name}">{text}</script>'


def _asset(name: str) -> str:
    return files("ebpfprof").joinpath("web", name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return f"sha256-{base64.b64encode(digest).decode('ascii')}"
