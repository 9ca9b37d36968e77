"""ELF files: bytes, segments, sections, relocations, symbols."""
