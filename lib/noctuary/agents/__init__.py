"""Noctuary inside coding agents: hooks, warm server, MCP."""
