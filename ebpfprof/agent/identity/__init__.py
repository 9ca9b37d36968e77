"""Who is who: what is known of a process, and which service it is."""
