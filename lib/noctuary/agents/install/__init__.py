"""Putting `noctuary hook` into the agents' own settings, taking it out, and the plugin folder.

What belongs here: which events, which files, merging and removing. What does not: what a hook does
when it runs (the modules beside this package). Shapes: research/ecosystem.md 1.1 and 1.4, from the
published types of Claude Code and the hook configuration of Codex.
"""
