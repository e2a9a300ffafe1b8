"""Compaction: old turns become clusters, clusters become summaries, a gate decides which may serve.

What belongs here: the partition of turns, the summarizers, the preservation gate and their tables.
What does not: encoding (the caller passes an encoder), archiving or deleting anything (raw turns
are never touched), and the read side. Nothing here is imported by noctuary.recall.
"""
