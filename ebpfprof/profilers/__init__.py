"""What can be profiled: a folder for each kind of profile, and what all kinds have in common."""
