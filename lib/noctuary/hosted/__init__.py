"""What is asked over HTTP: the client, its retries, and models behind OpenAI-compatible endpoints.

What belongs here: HTTP, retries, reading answers item by item. What does not: what is
asked, which texts may be sent, where answers are kept (noctuary.evaluate.generated,
noctuary.night.llm_triples, noctuary.compact.summarizers).

**Texts leave the machine.** Nothing here filters; whoever calls passes only what may be shown to
whoever runs the endpoint.
"""
