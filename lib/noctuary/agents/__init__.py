"""Noctuary inside coding agents: the hook command that they run, and where it keeps its state.

What belongs here: one hook event in, one answer out (`handling`), what it does to the outside
(`outside`), the process around it (`process`), its counters and its journal. What does not:
installing hooks into an agent's settings (`install`), reading transcripts (`noctuary.transcripts`).
"""
