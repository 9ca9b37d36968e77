"""The agent of a node: which processes it records, under which names, and where windows go."""
