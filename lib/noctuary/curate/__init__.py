"""Tidying the memory store itself: proposals every night, written to the source when asked.

What belongs here: what could be joined, replaced or settled in a source (`propose` and its finders:
`exact`, `fragments`, `replaced`, `near`, `contradictions`), the table of it (`table`), and writing
it to a source with a journal that takes it back (`apply`, `undo`, `journal`, `stores`). What does
not: what a recall does about old memories (`noctuary.recall.phases`), archives of noctuary's own
store.

No text is ever generated, and none is kept here: a proposal names rows, hashes and spans, and what
it would write is composed from the source's own rows inside the transaction that writes it. Nothing
is imported here.
"""
