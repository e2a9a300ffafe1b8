"""What recall puts into prompts, and how it is known again, so that it is not remembered twice.

What belongs here: the block that a prompt gets (`block`), the record of what was injected
(`injecting`, `record`), and recognising it in rows of the source (`recogniser`, `known`, the
night's). What does not: which rows are exported (`noctuary.corpus`).
"""
