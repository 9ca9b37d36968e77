"""Observes a process for some seconds: all that the rules of `findings` need, without a probe."""
