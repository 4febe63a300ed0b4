"""Two experiments over the same seeds: which has more of a quantity."""
