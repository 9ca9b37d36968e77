"""Backends of others that tests push to: built by the Go module proxy, started on loopback."""
