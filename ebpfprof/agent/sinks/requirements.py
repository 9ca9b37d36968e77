"""Checks the settings of a backend as a whole, and the files that they name."""

from __future__ import annotations

import os
import ssl
import stat
from typing import TYPE_CHECKING, Final

from ebpfprof.agent.sinks.secrets import read_secret
from ebpfprof.agent.sinks.tls import tls_context

if TYPE_CHECKING:
    from ebpfprof.agent.settings import SinkSettings

_NEEDED: Final = {
    "username": "password_file",
    "password_file": "username",
    "key_file": "certificate_file",
}
_OF_TLS: Final = ("ca_file", "certificate_file", "key_file")
_SECRETS: Final = ("bearer_token_file", "password_file")


class SettingError(Exception):
    """A setting that can't be used: its name, and a sentence."""

    def __init__(self, name: str, sentence: str) -> None:
        super().__init__(sentence)
        self.name = name


def require_usable(settings: SinkSettings) -> None:
    """Check the settings of a sink and the files that they name. Raises SettingError."""
    for name, needed in _NEEDED.items():
        if getattr(settings, name) and not getattr(settings, needed):
            raise SettingError(name, f"{name} needs a {needed}.")
    if settings.bearer_token_file and settings.username:
        raise SettingError(
            "bearer_token_file", "bearer_token_file and username exclude each other: use one."
        )
    if ":" in settings.username:
        raise SettingError("username", "username must not contain a colon.")
    for name in _SECRETS:
        if path := getattr(settings, name):
            try:
                read_secret(path)
            except ValueError as error:
                raise SettingError(name, f"{name}: {path} {error}.") from None
    _require_tls(settings)


def _require_tls(settings: SinkSettings) -> None:
    used = [name for name in _OF_TLS if getattr(settings, name)]
    if used and not settings.url.startswith("https:"):
        raise SettingError(used[0], f"{used[0]} needs a url with https.")
    for name in used:
        path = getattr(settings, name)
        try:
            if not stat.S_ISREG(os.stat(path).st_mode):
                raise SettingError(name, f"{name}: {path} is not a regular file.")
            open(path, "rb").close()
        except OSError as error:
            raise SettingError(name, f"{name}: {path} can't be read: {error.strerror}.") from None
    try:
        if used:
            tls_context(settings)
    except (ssl.SSLError, OSError) as error:
        reason = getattr(error, "reason", None) or error.strerror
        raise SettingError(used[0], f"{' and '.join(used)} can't be used: {reason}.") from None
