"""The MCP server: recall and its surroundings for any agent that speaks the protocol.

What belongs here: tools, resources, their shapes, and what one server may see. What does not:
ranking (noctuary.recall), the warm server of the hooks (noctuary.serve), writing to a memory store.

    view      what this server may see: store, user and wing, fixed when it starts
    memories  one memory or one summary in full
    relations what is connected with a memory or a concept
    recalling a recall inside the view
    state     what serves, as far as the view goes
    bounded   blocking work in threads, with a time limit
    schemas   the shapes of answers
    server    tools and resources of the protocol
    stdio     running it; `extra` says whether the SDK is installed

Only this package imports the SDK (`mcp`) and pydantic at the top of a module; only `noctuary mcp`
imports this package.
"""
