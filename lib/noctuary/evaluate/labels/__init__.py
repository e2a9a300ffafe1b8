"""Labels: queries with their relevant memories, how labels are read, pooled and agreed upon.

What belongs here: the formats and their faults, judging pools, agreement. No metric, no retrieval.
"""
