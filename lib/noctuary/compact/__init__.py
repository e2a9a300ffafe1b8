"""Compaction: clusters, summaries, the gate, and the archive of what they replace."""
