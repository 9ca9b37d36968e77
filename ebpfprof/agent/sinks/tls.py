"""TLS with a backend: the trusted authorities, and the client certificate."""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ebpfprof.agent.settings import SinkSettings


def tls_context(settings: SinkSettings) -> ssl.SSLContext:
    """A context with the system's authorities, or those of a file.

    Raises OSError (ssl.SSLError) for files that can't be used.
    """
    context = ssl.create_default_context(cafile=settings.ca_file or None)
    if settings.certificate_file:
        key = settings.key_file or None
        # Without a function it would ask for the password at the terminal.
        context.load_cert_chain(settings.certificate_file, key, password=lambda: "")
    return context
