"""What a summary says that can be checked against its sources without a model.

What belongs here: reading numbers, dates, identifiers, names and negations from a text, and the
comparison of two sides. What does not: vectors (noctuary.compact.gate), what becomes of a summary
that fails (noctuary.compact.escalation).
"""
