"""What decides each exercise: a predicate beside the reference answer and, where it needs its own, the given data."""
