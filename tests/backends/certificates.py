"""Certificates for servers of tests."""

from __future__ import annotations

import subprocess
from pathlib import Path


def certificate(folder: Path, name: str, address: str = "127.0.0.1") -> tuple[Path, Path]:
    """A certificate that vouches for itself, and its key."""
    made, key = folder / f"{name}.pem", folder / f"{name}.key"
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]
    command += ["-nodes", "-days", "2", "-subj", f"/CN={name}", "-keyout", str(key)]
    command += ["-addext", f"subjectAltName=IP:{address}", "-out", str(made)]
    subprocess.run(command, check=True, capture_output=True)
    return made, key
