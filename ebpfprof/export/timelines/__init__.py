"""One output format of timelines each."""
