"""Encoders that a provider runs: Voyage, OpenAI and Cohere through their HTTP interfaces.

What belongs here: what is known of their models, requests and answers, retries, what it costs, the
description by which the read side finds them. What does not: which texts may be embedded (the
export), where vectors are kept (noctuary.vectors.embed), when a night embeds (noctuary.night).

**Texts leave the machine.** Nothing here filters: whoever calls passes exported memories, or a
query that somebody asked. httpx is imported when the first request is made.
"""
