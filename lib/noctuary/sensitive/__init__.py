"""Lexical recall of rows that never leave their store, read in the store at that moment.

What belongs here: finding the store (`place`), reading its sensitive rows (`rows`), ranking them in
memory (`ranking`), the answer (`answer`) and the call that joins them (`api`). What does not:
everything that keeps, logs, sends or shows what is recalled. Nothing else of noctuary imports this
package but the command `noctuary sensitive`; a test holds that.
"""
