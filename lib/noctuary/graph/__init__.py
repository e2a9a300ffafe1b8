"""The concept graph: extraction, names, supersession, state, and the walk over it."""
