"""`make bench-verify`: index, verify, search, and an answer per number: OK, OKish or FAIL."""
