"""A profile as one HTML file with a flame graph and other views; it needs no network.

It shares its scripts and styles with the page of `serve` (ebpfprof/web).

standalone.js reads the JSON of the profile from #profile, and that of a base to compare with from
#base. If <main id="app"> has the attribute data-hide-idle, it hides idle waits at first.
"""

from collections.abc import Mapping
from typing import Any

from ebpfprof.export.html_page import html_page
from ebpfprof.export.json_profile import document
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
    "wakers.js",
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
    data = {"profile": document(profile, default=index)}
    if base:
        data["base"] = document(base, default=index)
    if sources:
        data["sources"] = dict(sources)
    return html_page(
        title(profile),
        scripts=_SCRIPTS,
        styles=_STYLES,
        data=data,
        attributes="data-hide-idle" if hide_idle else "",
    )
