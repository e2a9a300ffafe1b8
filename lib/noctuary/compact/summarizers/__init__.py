"""Summarizers behind one interface: extractive, a local seq2seq model, an endpoint.

What belongs here: texts of a cluster in, a draft out. What does not: whether a draft is smaller,
faithful or better than another way to make one (noctuary.compact.escalation).
"""
