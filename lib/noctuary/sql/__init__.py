"""SQL over what serves: the tables of `noctuary sql`, filled from a snapshot into DuckDB in memory.

What belongs here: the schema, the rows behind it, the closed database. What does not: printing
(`noctuary.cli.sql`), the snapshot's own files (`noctuary.snapshot`). Nothing is ever written to
disk.
"""
