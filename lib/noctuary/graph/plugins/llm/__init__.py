"""Names and triples from a language model behind an OpenAI-compatible endpoint; off by default.

What belongs here: the prompt, what is read and kept of the answers, how many are asked at once.
What does not: HTTP (noctuary.hosted), whether an answer is true of the text (plugins.verify), whose
memories may be sent (noctuary.night.graph_plugins).

Entry point: `noctuary.graph.plugins.llm.extractor.LlmExtractor`.

**Texts leave the machine**: the content of every memory that is passed in, cut to a bound, and
nothing else of it. Contents that read like a secret are not sent, whatever the caller thinks.
"""
