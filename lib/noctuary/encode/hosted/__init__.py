"""Encoders that a provider runs: Voyage, OpenAI and Cohere through their HTTP interfaces.

**Texts leave the machine.** Nothing here filters: whoever calls passes exported memories, or a
query that somebody asked. httpx is imported when the first request is made.
"""
