"""DWARF: entries, units, lines, inlined calls."""
