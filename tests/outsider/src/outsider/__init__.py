"""One learner, one plant, one reader and one kind of constraint from elsewhere."""
