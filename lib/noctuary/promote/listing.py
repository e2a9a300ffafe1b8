"""The night's proposals with their texts, for people.

What belongs here: which rows are listed, and the contents of their turns. What does not: judging
(`walk`), printing. Only rows of one user, or of nobody, are listed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from noctuary.corpus.export import iter_records
from noctuary.promote.table import PROPOSALS, PromotionRow, read_table


class Promotions(NamedTuple):
    """What a night proposed to one user.

    Attributes:
        rows: Highest G first; proposals only, or everything that was judged.
        text_of: Contents by turn id, of every row whose turn is still what was judged.
        is_on: False where that night did not judge.
        threshold: Least G of a proposal.
        counts: By reason, of all turns of this user, listed or not.
    """

    rows: tuple[PromotionRow, ...]
    text_of: Mapping[str, str]
    is_on: bool
    threshold: float
    counts: Mapping[str, int]


def list_promotions(
    work: Path, *, user: str | None = None, with_left: bool = False, limit: int | None = None
) -> Promotions:
    """Return what the last night proposed.

    Args:
        work: The work directory of the store.
        user: Whose turns; None for those of nobody in particular, never for everybody's.
        with_left: Turns that were left alone as well, after the proposals.
        limit: Most rows, >= 0; None for all.

    Raises:
        StoreError: There is no table, or no corpus beside it.
    """
    table = read_table(work / PROPOSALS)
    own = table._replace(rows=tuple(row for row in table.rows if row.user == user))
    rows = own.proposals()
    if with_left:
        proposed = {row.turn_id for row in rows}
        left = [row for row in own.rows if row.turn_id not in proposed]
        rows += sorted(left, key=lambda row: (-row.scores["g"], -row.created_at_us, row.turn_id))
    chosen = tuple(rows[:limit])
    counts = Counter(row.reason for row in own.rows)
    return Promotions(
        chosen, _texts(work, chosen), table.is_on, table.threshold, dict(sorted(counts.items()))
    )


def _texts(work: Path, rows: tuple[PromotionRow, ...]) -> dict[str, str]:
    hashes = {row.turn_id: row.content_hash for row in rows}
    if not hashes:
        return {}
    return {
        record.memory_id: record.content
        for batch in iter_records(work / "corpus")
        for record in batch
        if hashes.get(record.memory_id) == record.content_hash
    }
