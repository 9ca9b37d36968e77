"""How the Go runtime lays out memory: its structs, arenas, spans and mark bits."""
