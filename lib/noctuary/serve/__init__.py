"""The optional warm server: one process per store that keeps snapshot and encoder open.

What belongs here: the socket and its place, the protocol, the server and its client. How to recall
is noctuary.recall's. The client's modules import the standard library only and little of it: a
one-shot process pays for every import.
"""
