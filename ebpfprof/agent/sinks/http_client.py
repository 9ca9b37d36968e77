"""Requests to one server: a persistent connection, TLS, authentication, limits for responses.

Files with secrets and certificates are read again when they change, since tokens of a cluster
rotate.
"""

from __future__ import annotations

import os
import ssl
import time
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Final

import urllib3
from urllib3.exceptions import (
    ConnectTimeoutError,
    HTTPError,
    NameResolutionError,
    NewConnectionError,
    ReadTimeoutError,
    SSLError,
)

import ebpfprof
from ebpfprof.agent.sinks.secrets import read_secret
from ebpfprof.agent.sinks.sink import RetryLater
from ebpfprof.agent.sinks.tls import tls_context
from ebpfprof.console.text import printable

if TYPE_CHECKING:
    from ebpfprof.agent.settings import SinkSettings

MAX_ANSWER: Final = 256 << 10
"""How many bytes of a response are read; backends send a few hundred."""
_MAX_SHOWN: Final = 300
_MAX_AFTER_S: Final = 3600.0
_PIECE: Final = 16 << 10
_USER_AGENT: Final = f"ebpfprof/{ebpfprof.__version__}"


@dataclass(frozen=True, slots=True)
class Answer:
    """The response of a backend. `text` is the beginning of its body, printable, without secrets.

    `after_s` is the pause that it asks for, 0 without one.
    """

    status: int
    body: bytes = b""
    text: str = ""
    after_s: float = 0.0
    location: str = ""


@dataclass(slots=True)
class HttpClient:
    """Sends requests to one address. For one thread."""

    settings: SinkSettings
    path: str
    """The path of the backend's API, appended to the address of the settings."""
    _pool: urllib3.PoolManager | None = None
    _stamps: tuple[object, ...] = ()
    _secrets: list[str] = field(default_factory=list)

    @property
    def url(self) -> str:
        """The full address."""
        base = self.settings.url.rstrip("/")
        return base if base.endswith(self.path) else base + self.path

    def post(self, body: bytes, headers: Mapping[str, str]) -> Answer:
        """Post a body. Raises RetryLater without a response, or if a file can't be read."""
        return self._request("POST", self.url, body, headers, MAX_ANSWER)

    def get(self, query: str, headers: Mapping[str, str], most_bytes: int) -> Answer:
        """Get at most `most_bytes` of the body. Raises RetryLater, as post() does."""
        return self._request("GET", f"{self.url}?{query}", None, headers, most_bytes)

    def _request(
        self,
        method: str,
        url: str,
        body: bytes | None,
        headers: Mapping[str, str],
        most_bytes: int,
    ) -> Answer:
        until_s = time.monotonic() + self.settings.timeout
        sent = {**self._headers(), **headers, "User-Agent": _USER_AGENT}
        try:
            response = self._pooled().request(
                method,
                url,
                body=body,
                headers=sent,
                timeout=self.settings.timeout,
                redirect=False,
                preload_content=False,
            )
            with response:
                content = self._read(response, until_s, most_bytes)
                if response.length_remaining:
                    response.close()  # without waiting for the rest
                else:
                    response.release_conn()
            after_s = _after_s(response.headers.get("Retry-After", ""))
            location = self._shown(response.headers.get("Location", ""))
            text = self._shown(content[: 4 * _MAX_SHOWN].decode(errors="replace"))
            return Answer(response.status, content, text, after_s, location)
        except (HTTPError, OSError, ValueError) as error:
            raise RetryLater(self._shown(self._problem(error))) from None

    def close(self) -> None:
        """Close the connection."""
        if self._pool:
            self._pool.clear()
            self._pool = None

    def _read(self, response: urllib3.BaseHTTPResponse, until_s: float, most_bytes: int) -> bytes:
        pieces: list[bytes] = []
        size = 0
        while size < most_bytes and (piece := response.read(_PIECE, decode_content=False)):
            pieces.append(piece)
            size += len(piece)
            if time.monotonic() > until_s:
                raise TimeoutError
        return b"".join(pieces)[:most_bytes]

    def _headers(self) -> dict[str, str]:
        settings = self.settings
        headers = {"X-Scope-OrgID": settings.tenant} if settings.tenant else {}
        self._secrets = []
        if settings.bearer_token_file:
            token = self._secret(settings.bearer_token_file)
            headers["Authorization"] = f"Bearer {token}"
        elif settings.password_file:
            pair = f"{settings.username}:{self._secret(settings.password_file)}"
            encoded = b64encode(pair.encode()).decode()
            self._secrets.append(encoded)
            headers["Authorization"] = f"Basic {encoded}"
        return headers

    def _secret(self, path: str) -> str:
        try:
            secret = read_secret(path)
        except ValueError as error:
            raise RetryLater(f"{printable(path)} {error}") from error
        self._secrets.append(secret)
        return secret

    def _pooled(self) -> urllib3.PoolManager:
        settings = self.settings
        files = (settings.ca_file, settings.certificate_file, settings.key_file)
        stamps = tuple(_stamp(path) for path in files if path)
        if self._pool is None or stamps != self._stamps:
            self.close()
            self._stamps = stamps
            self._pool = urllib3.PoolManager(
                num_pools=1,
                retries=False,
                ssl_context=tls_context(settings) if settings.url.startswith("https:") else None,
            )
        return self._pool

    def _problem(self, error: Exception) -> str:
        """Why there is no response: a sentence that continues "could not deliver: "."""
        seconds = f"{self.settings.timeout:g} s"
        if isinstance(error, NameResolutionError):
            return "the host name can't be resolved"
        if isinstance(error, NewConnectionError):  # also a ConnectTimeoutError
            cause = error.__cause__ or error
            return f"cannot connect: {getattr(cause, 'strerror', None) or cause}"
        if isinstance(error, ConnectTimeoutError):
            return f"cannot connect within {seconds}"
        if isinstance(error, ReadTimeoutError | TimeoutError):
            return f"it did not respond within {seconds}"
        if isinstance(error, SSLError | ssl.SSLError):
            return f"TLS failed: {error}"
        return f"the connection broke: {error}"

    def _shown(self, text: str) -> str:
        """A text of the server, for a log: short, printable, and without our secrets."""
        for secret in self._secrets:
            text = text.replace(secret, "***")
        shown = printable(" ".join(text.split()))
        return shown if len(shown) <= _MAX_SHOWN else shown[: _MAX_SHOWN - 3] + "..."


def _stamp(path: str) -> object:
    """Changes if the file changes."""
    status = os.stat(path)
    return status.st_ino, status.st_mtime_ns, status.st_size


def _after_s(text: str) -> float:
    """The seconds of a header Retry-After, a number or a date; 0 for anything else."""
    try:
        if text.strip().isdigit():
            seconds = float(text)
        else:
            seconds = parsedate_to_datetime(text).timestamp() - time.time()
    except (ValueError, OverflowError, TypeError):
        return 0.0
    return min(max(seconds, 0.0), _MAX_AFTER_S)
