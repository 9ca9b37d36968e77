"""Errors as answers: a page for a browser, JSON for our own page, a line of text for tools."""

from __future__ import annotations

import base64
import hashlib
import html
import json
from http import HTTPStatus
from typing import Final

from starlette.datastructures import Headers
from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.types import Scope

_STYLE: Final = """
:root { color-scheme: light dark; font: 16px/1.5 system-ui, sans-serif; }
body { max-width: 40rem; margin: 3rem auto; padding: 0 1rem; overflow-wrap: anywhere; }
h1 { font-size: 1.3rem; }
form { display: flex; flex-wrap: wrap; gap: 0.6rem; }
input, button { font: inherit; padding: 0.2rem 0.6rem; }
"""
_HASH: Final = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
_PAGE_HEADERS: Final = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": f"default-src 'none'; style-src 'sha256-{_HASH}'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "Vary": "Accept",
}
_PAGE: Final = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title} – ebpfprof</title>
<style>{style}</style>
</head>
<body>
<h1>{title}</h1>
<p>{sentence}</p>
{way_out}
</body>
</html>
"""
_BACK: Final = '<p><a href="/">What this server serves</a></p>'
_FORM: Final = """<form action="{path}" method="get">
<label>Token <input name="token" type="password" autocomplete="off" required autofocus></label>
<button type="submit">Open</button>
</form>"""


def refused(
    scope: Scope, status: int, sentence: str, headers: dict[str, str] | None = None
) -> Response:
    """An error: JSON for the page, a page for a browser, a line for `go tool pprof` and all others.

    The page for status 401 has a form for the token.
    """
    own = {"X-Content-Type-Options": "nosniff", **(headers or {})}
    if scope["path"].startswith("/api/"):
        body = json.dumps({"error": sentence})
        return Response(body, status, {**own, "Cache-Control": "no-store"}, "application/json")
    if wants_page(scope):
        return HTMLResponse(_page(scope, status, sentence), status, {**own, **_PAGE_HEADERS})
    return PlainTextResponse(sentence + "\n", status, {**own, "X-Go-Pprof": "1"})


def wants_page(scope: Scope) -> bool:
    """Whether a browser asks for something to show: tools don't name text/html."""
    accepted = Headers(scope=scope).get("accept", "")
    return "text/html" in (part.partition(";")[0].strip() for part in accepted.split(","))


def _page(scope: Scope, status: int, sentence: str) -> str:
    is_form = status == HTTPStatus.UNAUTHORIZED
    way_out = _FORM.format(path=html.escape(own_path(scope))) if is_form else _BACK
    return _PAGE.format(
        title=html.escape(HTTPStatus(status).phrase),
        sentence=html.escape(sentence),
        style=_STYLE,
        way_out=way_out,
    )


def own_path(scope: Scope) -> str:
    """The path of the request, as an address on this server: //HOST would be another one."""
    path: str = scope["raw_path"].decode("latin-1")
    return "/" + path.lstrip("/\\")
