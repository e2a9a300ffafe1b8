"""Which rows of a source are the memories of a proposal, or why they are not.

What belongs here: by id and content, and by content alone in a copy of the source whose ids are its
own (research/peers.md 2.2: a local cache and its server share contents, not ids). What does not:
writing.

- In the source that the night read, a row is a target if its id and the hash of all its fields are
  those of the proposal: any change since refuses.
- In another source, ids may name other rows. A proposal is matched as a whole: by the ids if every
  one of them has the content, else by content, where each text must occur exactly as often as among
  the targets. All rows must be of one user (of the proposal's, where it has one) and of its wing.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from noctuary.curate.model import Proposal, Target
from noctuary.curate.stores.base import StoredRow, Transaction
from noctuary.errors import CurationRefusedError
from noctuary.hashing import hash_text

_ROW_ID = re.compile(r"-?[0-9]{1,19}")

Matched = Mapping[str, StoredRow]
"""Rows by the memory id of the target."""


class Where(NamedTuple):
    """What is known of the source that is written.

    Attributes:
        is_own: It is the one that the night read.
        text_of: Contents by memory id, as the night read them.
    """

    is_own: bool
    text_of: Mapping[str, str]


def match(proposal: Proposal, source: Transaction, where: Where) -> Matched:
    """Return the row of every target, locked.

    Raises:
        CurationRefusedError: The source is not as it was when this was proposed.
    """
    found = _by_id(proposal, source)
    wrong = _first_wrong(proposal, found, where)
    if wrong is not None and not where.is_own:
        found = _by_text(proposal, source, where)
        wrong = _first_wrong(proposal, found, where)
    if wrong is not None:
        raise CurationRefusedError(f"{proposal.proposal_id}: memory {wrong}")
    matched = {memory_id: row for memory_id, row in found.items() if row is not None}
    _check_users(proposal, matched)
    return matched


def _by_id(proposal: Proposal, source: Transaction) -> dict[str, StoredRow | None]:
    return {
        t.memory_id: source.row(int(t.memory_id)) if _is_row_id(t.memory_id) else None
        for t in proposal.targets
    }


def _is_row_id(memory_id: str) -> bool:
    return _ROW_ID.fullmatch(memory_id) is not None and -(2**63) <= int(memory_id) < 2**63


def _by_text(proposal: Proposal, source: Transaction, where: Where) -> dict[str, StoredRow | None]:
    groups: defaultdict[str, list[Target]] = defaultdict(list)
    for target in proposal.targets:
        groups[target.text_hash].append(target)
    found: dict[str, StoredRow | None] = {}
    for targets in groups.values():
        text = where.text_of.get(targets[0].memory_id)
        rows = [] if text is None else list(_alike(proposal, source, text))
        # More rows than targets: which are meant cannot be told.
        chosen: Sequence[StoredRow | None] = (
            rows if len(rows) == len(targets) else [None] * len(targets)
        )
        found.update(zip((t.memory_id for t in targets), chosen, strict=True))
    return found


def _alike(proposal: Proposal, source: Transaction, text: str) -> Iterator[StoredRow]:
    for row_id in source.ids_with_text(text):
        row = source.row(row_id)
        if row is None or row.record is None or row.record.wing != proposal.wing:
            continue
        if proposal.user is None or row.record.user == proposal.user:
            yield row


def _first_wrong(
    proposal: Proposal, found: Mapping[str, StoredRow | None], where: Where
) -> str | None:
    """Return what is wrong with the first target that is not as it was, or None."""
    for target in proposal.targets:
        row = found[target.memory_id]
        if row is None:
            return f"{target.memory_id} is not there, or not exactly once"
        if row.record is None:
            return f"{target.memory_id} is sensitive, deleted or damaged by now"
        if where.is_own and row.record.content_hash != target.content_hash:
            return f"{target.memory_id} was changed since"
        if hash_text(row.record.content) != target.text_hash:
            return f"{target.memory_id} has another text by now"
        if row.record.wing != proposal.wing:
            return f"{target.memory_id} is of another wing"
    return None


def _check_users(proposal: Proposal, matched: Matched) -> None:
    users = {row.record.user for row in matched.values() if row.record is not None}
    wanted = proposal.user
    if len(users) > 1 or (wanted is not None and users != {wanted}):
        raise CurationRefusedError(
            f"{proposal.proposal_id}: its memories are not all of one user in this source"
        )
