"""Compaction: clusters, summaries, the gate, and the archive of replaced memories."""
