"""Agents' transcripts to turns: a tolerant reader of their JSON lines and the file it fills.

The order of the modules is the order of a line's way:

    lines, tracking      bytes of a file that were not read before, as lines; where to go on
    claude, codex        one line to messages and their parts, per agent
    wrappers, tools      what of a text its speaker said; tool calls and results as short text
    moments, vetting     when it was said; what of it may be kept
    turns_file           turns.sqlite: turns, their parts and how far each file was read
    ingest, capture      all files of a folder at night; one file when an agent stops
    discovery            which files are transcripts
    projects             the wing of a folder
    turns_source         turns.sqlite as a source of the corpus; build side

But for the last one standard library only: a hook captures a session with them.
"""

from __future__ import annotations
