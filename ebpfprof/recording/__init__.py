"""The lifecycle of a recording, from opened processes to profiles."""
