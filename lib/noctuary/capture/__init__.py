"""A local cache of a store at the other end of a connection: which of its rows is which memory.

What belongs here: the bridge between the two. What does not: asking one kind of store
(`noctuary.corpus`), the order of a night (`noctuary.night`). Build side: recall imports nothing of
it.
"""
