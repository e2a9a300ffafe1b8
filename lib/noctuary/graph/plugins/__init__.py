"""Extractors besides the rules: what they found is checked against the text and added.

What belongs here: the interface (`base`), the check (`verify`), the union with what the rules found
(`merge`), and the plug-ins: `llm` (an OpenAI-compatible endpoint), `spacy` (a local pipeline). What
does not: which one is switched on and whose memories it may see (noctuary.night.graph_plugins).
"""
