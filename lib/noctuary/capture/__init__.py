"""Following a store at the other end of a connection: what changed is read, the rest is kept.

What belongs here: the replica of such a store (`replica_file`, `stored_row`), bringing it up to
date (`capturing`), reading it as a source (`replica_source`), and which row of a local cache is
which memory (`bridge`). What does not: asking one kind of store (`noctuary.corpus`), the order of a
night (`noctuary.night`). Build side: recall imports nothing of it.
"""
