"""`make bench-quality`: every arm on every labelled set, resumable, with its statistics."""
