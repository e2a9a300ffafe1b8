"""Memory stores that a night reads, and the corpus that it writes of them."""
