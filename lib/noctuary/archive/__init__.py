"""Soft archive: which memories are out of default recall, by which plan, and since when.

`ledger_file` and `reading` belong to the read side (standard library only); everything else is
build side: `plan` finds what could be archived and says why, `writing` applies and undoes plans,
`summaries` keeps the texts that stand for groups. Nothing is imported here, and no memory is ever
changed or deleted.
"""
