"""Queries that a language model writes about a corpus and another one grades; off by default.

What belongs here: talking to two OpenAI-compatible endpoints, the prompts, and what is kept of
their answers. What does not: which memories are asked about, settings, where results are memoised
(the caller), scoring.

Entry point: `noctuary.evaluate.generated.generate.generate_queries`.

**Texts leave the machine.** Every memory that is passed in is sent to both endpoints. This package
filters nothing: the caller passes only records that the corpus export has let through (sensitive
rows set aside) and that may be shown to whoever runs the endpoints.
"""
