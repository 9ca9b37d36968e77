"""What a recording costs the target: the budget, the estimate, and what it changes."""
