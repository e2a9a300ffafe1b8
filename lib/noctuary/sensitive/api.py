"""`recall_sensitive`: sensitive rows that answer a question, read in the store and kept nowhere.

What belongs here: permission, whose rows, and that no failure says what a row holds. What does not:
reading (`rows`), ranking (`ranking`).
"""

from __future__ import annotations

import time
from pathlib import Path

from noctuary.errors import ConfigError, NoctuaryError, SourceError
from noctuary.locate import find_home
from noctuary.sensitive.answer import SensitiveAnswer, SensitiveMemory
from noctuary.sensitive.place import Place, find_place
from noctuary.settings import CONFIG_FILE_NAME, Settings
from noctuary.types import MemoryRecord, from_micros


def recall_sensitive(
    query: str, k: int = 10, *, user: str | None = None, store: str | Path | None = None
) -> SensitiveAnswer:
    """Return the sensitive rows of a memory store that fit a question best, by its words.

    Off unless `sensitive.recall` is set. The store itself is read, read-only and at this moment;
    the question and the rows stay in this process: no log, no trace, no cache, no server.

    Args:
        query: Any text.
        k: How many at most, >= 0.
        user: Who asks: rows of other named users are never read into the answer, not even ones
            that they share.
        store: A store directory, its name, or the source it was built from; None means the
            configured or only one.

    Returns:
        The rows that share a word with the question, best first, ties by id.

    Raises:
        ValueError: k is negative.
        ConfigError: It is off, or the settings do not name the store's database.
        StoreError: There is no such store, or nothing was published.
        SourceError: The memory store cannot be read.
    """
    if k < 0:
        raise ValueError(f"k must be at least 0, found {k}")
    settings = Settings.load(home=find_home())
    if not settings.sensitive.recall:
        raise ConfigError(
            "sensitive rows are not recalled: set recall = true under [sensitive] in "
            f"{find_home() / CONFIG_FILE_NAME}, or NOCTUARY_SENSITIVE_RECALL=true"
        )
    place = find_place(store, settings.source)
    answer = _answer(place, settings, query, k, user)
    # Raised here, where no local holds a row: a report of a crash may show locals.
    if isinstance(answer, NoctuaryError):
        raise answer
    return answer


def _answer(
    place: Place, settings: Settings, query: str, k: int, user: str | None
) -> SensitiveAnswer | NoctuaryError:
    try:
        return _search(place, settings, query, k, user)
    except NoctuaryError as error:
        return type(error)(str(error))
    except Exception as error:
        # Its own text may quote a row.
        name = getattr(error, "sqlite_errorname", type(error).__name__)
        return SourceError(f"{place.source} could not be read ({name}); nothing was kept")


def _search(
    place: Place, settings: Settings, query: str, k: int, user: str | None
) -> SensitiveAnswer:
    from noctuary.lexical.fields import document_tokens
    from noctuary.sensitive.ranking import score_documents

    held = _visible(place, settings, user)
    documents = [
        document_tokens(r.content, r.tags, r.expanded_keywords, r.category) for r, _, _ in held
    ]
    scores = score_documents(query, documents)
    order = sorted(range(len(held)), key=lambda i: (-scores[i], i))
    best = [_memory(*held[i], float(scores[i])) for i in order[:k] if scores[i] > 0]
    return SensitiveAnswer(tuple(best), str(place.source), len(held))


def _visible(
    place: Place, settings: Settings, user: str | None
) -> list[tuple[MemoryRecord, str, str | None]]:
    """Return what a user may see: a record made by the export's rules, reason, vault path."""
    from noctuary.corpus.normalize import Accepted, normalize
    from noctuary.corpus.source import RawRow
    from noctuary.sensitive.rows import read_sensitive

    now_us = time.time_ns() // 1000
    found: list[tuple[MemoryRecord, str, str | None]] = []
    for row in read_sensitive(place, settings.source, user):
        raw = RawRow("", row.key, row.fields)
        verdict = normalize(raw, position=0, now_us=now_us, settings=settings.corpus)
        if isinstance(verdict, Accepted) and verdict.record.user in (None, user):
            found.append((verdict.record, row.reason, row.vault_path))
    return found


def _memory(
    record: MemoryRecord, reason: str, vault_path: str | None, score: float
) -> SensitiveMemory:
    created = from_micros(record.created_at_us)
    return SensitiveMemory(
        record.memory_id,
        reason,
        score,
        record.content,
        record.category,
        record.tags,
        created.isoformat() if created else None,
        record.user,
        vault_path,
    )
