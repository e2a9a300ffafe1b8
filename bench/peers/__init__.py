"""Other systems over the same sets, each in its own environment, offline, in one table."""
