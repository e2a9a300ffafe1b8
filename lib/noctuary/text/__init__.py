"""Text to tokens: script detection, the one tokenizer, and the byte form of its output.

What belongs here: pure functions from text to tokens, used identically on memories and queries.
What does not: weights, postings, ranking (noctuary.lexical) and sub-word tokens of a model
(noctuary.encode).
"""
