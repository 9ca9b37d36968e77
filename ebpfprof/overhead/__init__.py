"""What a recording costs the target: the budget, and the estimate."""
