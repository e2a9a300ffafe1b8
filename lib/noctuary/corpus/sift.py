"""One pass in which every row is counted exactly once: memory, quarantined or sensitive.

What belongs here: the order of judgements and the rule for rows that share an id. Sensitivity comes
first. Of several rows with one id the first is the memory and the others are duplicates, unless
any of them is sensitive: then none leaves the store, because the others may be older texts of the
same row. What is a memory otherwise comes before the guard last, which knows what recall put into
prompts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator
from dataclasses import dataclass, field, replace

from noctuary.corpus.guard import Guard
from noctuary.corpus.normalize import Rejected, normalize
from noctuary.corpus.quarantine import QuarantineReason, QuarantineRow
from noctuary.corpus.sensitive import SHARES_ID, find_sensitivity
from noctuary.corpus.source import RawRow
from noctuary.settings import CorpusSettings
from noctuary.text.sensitivity import find_text_sensitivity
from noctuary.types import MemoryRecord, content_hash

Sink = Callable[[QuarantineRow], None]

WARN_BLOCK_CUT = "injected_block_cut"
WARN_LINES_CUT = "injected_lines_cut"


@dataclass(slots=True)
class Tally:
    """The running counts of one pass; `retracted` rows were exported before they were sensitive."""

    exported: int = 0
    quarantined: Counter[str] = field(default_factory=Counter[str])
    sensitive: Counter[str] = field(default_factory=Counter[str])
    warnings: Counter[str] = field(default_factory=Counter[str])
    retracted: int = 0

    @property
    def total(self) -> int:
        """Return how many rows have been judged."""
        return self.exported + self.quarantined.total() + self.sensitive.total()


@dataclass(slots=True)
class _SameId:
    """The rows of one id, as far as they have been read; only the first clean one is held whole."""

    key: int | str
    first: RawRow | None = None
    duplicates: list[str] = field(default_factory=list[str])
    is_sensitive: bool = False
    was_exported: bool = False


def sift(
    rows: Iterable[RawRow],
    *,
    now_us: int,
    settings: CorpusSettings,
    tally: Tally,
    quarantine: Sink,
    previous_ids: Container[str] = frozenset(),
    guard: Guard | None = None,
) -> Iterator[MemoryRecord]:
    """Yield the memories among the rows, positions 0, 1, 2, ... in the order of the rows.

    Args:
        rows: In key order, rows of one id adjacent (rows without an id may lie between them).
        now_us: The moment after which a date is in the future, microseconds since the epoch.
        settings: Content limit and turn categories.
        tally: Counts every row; complete once the iterator is exhausted.
        quarantine: Receives every row that is set aside.
        previous_ids: Ids of an earlier export, so that rows which turned sensitive are noticed.
        guard: Recognises what recall injected; None lets everything pass.
    """

    def settle(group: _SameId | None) -> MemoryRecord | None:
        return _settle(group, now_us, settings, tally, quarantine, guard)

    group: _SameId | None = None
    for row in rows:
        reason = find_sensitivity(row)
        if reason is not None:
            tally.sensitive[reason] += 1
        if row.key is None:
            if reason is None:
                _set_aside(row, tally, quarantine)
            continue
        if group is None or group.key != row.key:
            if record := settle(group):
                yield record
            group = _SameId(row.key, was_exported=str(row.key) in previous_ids)
        _join(group, row, reason is not None)
    if record := settle(group):
        yield record


def _join(group: _SameId, row: RawRow, is_sensitive: bool) -> None:
    if is_sensitive:
        group.is_sensitive = True
    elif group.first is None:
        group.first = row
    else:
        group.duplicates.append(row.locator)


def _settle(
    group: _SameId | None,
    now_us: int,
    settings: CorpusSettings,
    tally: Tally,
    quarantine: Sink,
    guard: Guard | None,
) -> MemoryRecord | None:
    if group is None:
        return None
    tally.retracted += group.is_sensitive and group.was_exported
    first = group.first
    if first is None:
        return None
    if group.is_sensitive:
        tally.sensitive[SHARES_ID] += 1 + len(group.duplicates)
        return None
    for locator in group.duplicates:
        tally.quarantined[QuarantineReason.DUPLICATE_ID] += 1
        quarantine(
            QuarantineRow(locator, QuarantineReason.DUPLICATE_ID, f"first at {first.locator}")
        )
    verdict = normalize(first, position=tally.exported, now_us=now_us, settings=settings)
    if isinstance(verdict, Rejected):
        tally.quarantined[verdict.reason] += 1
        quarantine(QuarantineRow(first.locator, verdict.reason, verdict.detail))
        return None
    record = verdict.record if guard is None else _guarded(verdict.record, guard, tally)
    if isinstance(record, Rejected):
        tally.quarantined[record.reason] += 1
        quarantine(QuarantineRow(first.locator, record.reason, record.detail))
        return None
    if (reason := _find_made_sensitivity(first, record)) is not None:
        tally.sensitive[reason] += 1
        tally.retracted += group.was_exported
        return None
    tally.exported += 1
    tally.warnings.update(verdict.warnings)
    return record


def _find_made_sensitivity(row: RawRow, record: MemoryRecord) -> str | None:
    """Judge the texts that are not the row's own: lists that were joined, contents that were cut.

    What stood apart may read like a secret once it stands together.
    """
    texts = (
        ("content", record.content),
        ("category", record.category),
        ("tags", record.tags),
        ("expanded_keywords", record.expanded_keywords),
    )
    made = [text for name, text in texts if text and row.fields.get(name) != text]
    return next(filter(None, map(find_text_sensitivity, made)), None)


def _guarded(record: MemoryRecord, guard: Guard, tally: Tally) -> MemoryRecord | Rejected:
    """Return a memory without what recall injected, or why nothing of it is its own."""
    found = guard.judge(record)
    if found.text is None:
        reason = QuarantineReason.INJECTED_LINES if found.lines else QuarantineReason.INJECTED_BLOCK
        return Rejected(reason, f"content: {found.blocks} blocks, {found.lines} lines")
    tally.warnings[WARN_BLOCK_CUT] += found.blocks > 0
    tally.warnings[WARN_LINES_CUT] += found.lines > 0
    if found.text == record.content:
        return record
    own = replace(record, content=found.text)
    return replace(own, content_hash=content_hash(own))


def _set_aside(row: RawRow, tally: Tally, quarantine: Sink) -> None:
    reason = row.problem or QuarantineReason.BAD_ID
    tally.quarantined[reason] += 1
    quarantine(QuarantineRow(row.locator, reason, row.problem_detail))
