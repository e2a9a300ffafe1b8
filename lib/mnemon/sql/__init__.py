"""SQL over what serves: the tables of `mnemon sql`, filled from a snapshot into DuckDB in memory.

What belongs here: the schema, the rows behind it, the closed database. What does not: printing
(`mnemon.cli.sql`), the snapshot's own files (`mnemon.snapshot`). Nothing is ever written to disk.
"""
