"""Which references keep objects on a target's heap alive, read from its memory while it runs."""
