"""Summarizers: verbatim sentences, a local seq2seq model, a model behind an endpoint."""
