"""Native code: names, lines, inlined calls."""
