"""Lexical recall of rows that never leave their store, read in the store at that moment.

Nothing else of noctuary imports this package but the command `noctuary sensitive`; a test holds
that, so that no log, server, hook or replay can show what is recalled here.
"""
