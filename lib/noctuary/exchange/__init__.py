"""Export and import: a snapshot as JSON lines and Parquet, and a snapshot made of them again.

What belongs here: the format, writing it, reading it back. What does not: the snapshot's own files
(`noctuary.snapshot`), the commands (`noctuary.cli`).
"""
