"""PostgreSQL: addresses, connections and the shape of a claude-memory database.

What belongs here: what every part that talks to such a database shares. What does not: reading it
for a night (`noctuary.corpus`), writing to it (`noctuary.curate.stores.postgres`).
"""
