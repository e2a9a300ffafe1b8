"""Lexical recall of rows that never leave their store, read in their place."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

import numpy as np
from numpy.typing import NDArray

from noctuary.core.errors import ConfigError, NoctuaryError, SourceError
from noctuary.core.manifest import read_manifest, read_pointer
from noctuary.core.settings import CONFIG_FILE_NAME, Settings, SourceSettings
from noctuary.core.store import (
    DatabaseName,
    SourceName,
    StorePaths,
    find_home,
    find_store,
    name_source,
    names_postgres,
)
from noctuary.core.tombstones import Tombstones, read_tombstones
from noctuary.core.types import from_micros
from noctuary.lexical.search import idf, saturation
from noctuary.text.flags import MARKS
from noctuary.text.secrets import find_fields_sensitivity
from noctuary.text.tokens import tokenize

if TYPE_CHECKING:
    from noctuary.sources.postgres import Reader


# The rows that no night exports, read out of the store itself and into this process alone. Which
# rows are sensitive, the export's rules say; connections are the night's, read-only and pinned.
# Nothing of the question is sent to a server, which may log its statements.

VAULT_PATH = "vault_path"

_Row = tuple[object, object, Mapping[str, object]]
"""What its query says of a row: its mark, its vault path, its columns."""


class HeldRow(NamedTuple):
    """A row that never leaves its store: its id, why, its columns without marks, its vault path."""

    key: Any
    reason: str
    fields: Mapping[str, object]
    vault_path: str | None


def read_sensitive(
    source: SourceName, kind: str, settings: SourceSettings, user: str | None
) -> Iterator[HeldRow]:
    """Yield every sensitive row that a user may see; SourceError where none is given."""
    if isinstance(source, DatabaseName):
        rows = _of_database(source, settings, user)
    elif kind == "claude-memory-sqlite":
        rows = _of_sqlite(source)
    elif kind in ("jsonl", "jsonl.gz"):
        rows = _of_lines(source)
    else:
        raise SourceError(
            f"sensitive rows of a store of the kind {kind} cannot be recalled: only "
            "claude-memory stores (SQLite, PostgreSQL) and JSON lines can"
        )
    for mark, vault, fields in rows:
        reason = mark or find_fields_sensitivity(fields)
        if reason is not None:
            shown = {name: value for name, value in fields.items() if name not in MARKS}
            path = vault if isinstance(vault, str) else None
            yield HeldRow(fields["id"], str(reason), shown, path)


def _of_sqlite(path: Path) -> Iterator[_Row]:
    from noctuary.sources.sqlite import SqliteSource

    with SqliteSource(path) as source:
        for mark, values in source.every_row(VAULT_PATH):
            yield mark, values.pop(VAULT_PATH), values


def _of_lines(path: Path) -> Iterator[_Row]:
    from noctuary.sources.jsonl import JsonlSource

    with JsonlSource(path) as source:
        for row in source.rows():
            if row.problem is None and row.key is not None:
                yield None, row.fields.get(VAULT_PATH), {**row.fields, "id": row.key}


def _of_database(name: DatabaseName, settings: SourceSettings, user: str | None) -> Iterator[_Row]:
    from noctuary.sources.postgres import Pinned, make_reader, read_address, read_pages

    with closing(Pinned(read_address(name))) as pinned:
        known = make_reader(pinned, settings.user)
        names, sql = _marked_sql(known)
        for mark, vault, *values in pinned.stream(sql, {"user": user}):
            yield mark, vault, dict(zip(names, values, strict=True))
        if known.has_users and user is None:
            return  # every row is somebody's
        # What only its text betrays is not marked: these rows the night's own query gives.
        reader = known._replace(user=user if known.has_users else None)
        for row in read_pages(pinned, reader):
            if row.withheld is None and row.problem is None:
                yield None, None, {**row.fields, "id": row.key}


def _marked_sql(reader: Reader) -> tuple[tuple[str, ...], str]:
    """Return the columns and the query of the marked rows of one user and of nobody."""
    from noctuary.sources.postgres import MEMORIES, field_names, mark_sql, user_sql

    names, owner = field_names(reader), user_sql(reader)
    dates = ("created_at", "updated_at", "deleted_at")
    shown = [owner if n == "user_id" else f"m.{n}::text" if n in dates else f"m.{n}" for n in names]
    vault = f"m.{VAULT_PATH}::text" if VAULT_PATH in reader.columns else "NULL::text"
    mark = mark_sql(reader.columns)
    return names, (
        f"SELECT {mark}, {vault}, {', '.join(shown)} FROM {MEMORIES} m WHERE {mark} IS NOT NULL "
        f"AND ({owner} IS NULL OR {owner} = %(user)s::text) ORDER BY m.id"
    )


class _NeverStored:
    """Refuses to be pickled, copied or made JSON: so values reach files, caches and processes."""

    __slots__ = ()

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise TypeError(
            f"a {type(self).__name__} is never stored or sent: call reveal() where it is shown"
        )


@dataclass(frozen=True, slots=True)
class SensitiveMemory(_NeverStored):
    """One row that matched; `repr` shows its id, why it is sensitive and its score."""

    memory_id: str  # the store's own id, as text
    reason: str  # why it never leaves the store (noctuary.text.secrets)
    score: float  # BM25 among the sensitive rows, > 0
    content: str = field(repr=False)  # the text as the store has it
    category: str = field(repr=False)
    tags: str = field(repr=False)  # comma-separated
    created_at: str | None = field(repr=False)  # ISO 8601, or None where undated
    user: str | None = field(repr=False)  # whose row it is
    vault_path: str | None = field(repr=False)  # where the server keeps what it took out

    def reveal(self) -> dict[str, Any]:
        """Return every field as plain values, to be shown and forgotten."""
        _, *names = self.__dataclass_fields__
        return {"id": self.memory_id, **{name: getattr(self, name) for name in names}}


@dataclass(frozen=True, slots=True)
class SensitiveAnswer(_NeverStored):
    """What a recall of sensitive rows found."""

    memories: tuple[SensitiveMemory, ...]  # best first
    source: str  # the store that was read; no password
    searched: int  # sensitive rows that this user may see, whether they matched or not

    def reveal(self) -> dict[str, Any]:
        """Return everything as plain values, to be shown and forgotten."""
        memories = [memory.reveal() for memory in self.memories]
        return {"source": self.source, "searched": self.searched, "memories": memories}


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
        StoreError: There is no such store, nothing was published, or what was forgotten cannot
            be read.
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
    source, kind, gone = _find_source(store, settings)
    try:
        answer = _search(source, kind, settings, query, k, user, gone)
    except NoctuaryError as error:
        answer = type(error)(str(error))
    except Exception as error:
        # Its own text may quote a row.
        name = getattr(error, "sqlite_errorname", type(error).__name__)
        answer = SourceError(f"{source} could not be read ({name}); nothing was kept")
    # Raised here, where no local holds a row: a report of a crash may show locals.
    if isinstance(answer, NoctuaryError):
        raise answer
    return answer


def score_documents(query: str, documents: Sequence[Sequence[str]]) -> NDArray[np.float64]:
    """Return BM25 scores >= 0; how rare a word is, these documents alone say."""
    scores = np.zeros(len(documents))
    counts = [Counter(tokens) for tokens in documents]
    lengths = np.array([len(tokens) for tokens in documents], dtype=np.float64)
    mean = float(lengths.mean()) if lengths.any() else 1.0
    for token in sorted(set(tokenize(query))):
        held = np.array([count[token] for count in counts], dtype=np.float64)
        frequency = np.array([np.count_nonzero(held)], dtype=np.int64)
        scores += idf(frequency, len(documents)) * saturation(held, lengths, mean)
    return scores


def _find_source(
    store: str | Path | None, settings: Settings
) -> tuple[SourceName, str, Tombstones]:
    """Return what the serving snapshot was made of, its kind, and what was forgotten of it."""
    directory, _ = find_store(store, home=find_home())
    paths, gone = StorePaths(directory), read_tombstones(directory)
    known = read_manifest(paths.snapshots / read_pointer(paths).snapshot_id).source
    location, kind = str(known["location"]), str(known["kind"])
    if not names_postgres(location):
        return Path(location), kind, gone
    # No manifest holds a password.
    path = settings.source.path
    named = name_source(path) if names_postgres(path) else None
    if named is None or str(named) != location:
        raise ConfigError(
            f"{directory.name} was made of {location}, which the settings do not name: set "
            "source.path (or NOCTUARY_SOURCE_PATH) to its address or to env:NAME"
        )
    return named, kind, gone


def _search(
    source: SourceName, kind: str, settings: Settings, query: str, k: int, user: str | None,
    gone: Tombstones,
) -> SensitiveAnswer:  # fmt: skip
    from noctuary.sources.normalize import Accepted, normalize
    from noctuary.sources.source import RawRow
    from noctuary.text.tokens import document_tokens

    now_us = time.time_ns() // 1000
    held: list[tuple[Any, ...]] = []
    for row in read_sensitive(source, kind, settings.source, user):
        raw = RawRow("", row.key, row.fields)
        # By the export's rules. Tags may name a user, too.
        verdict = normalize(raw, position=0, now_us=now_us, settings=settings.corpus)
        if not isinstance(verdict, Accepted) or verdict.record.user not in (None, user):
            continue
        # One that was forgotten and then marked stays in a foreign store.
        if not gone.holds(verdict.record):
            held.append((verdict.record, row))
    scores = score_documents(
        query,
        [document_tokens(r.content, r.tags, r.expanded_keywords, r.category) for r, _ in held],
    )
    found: list[SensitiveMemory] = []
    for place in sorted(range(len(held)), key=lambda i: (-scores[i], i))[:k]:
        r, row = held[place]
        created = from_micros(r.created_at_us)
        shown = (r.content, r.category, r.tags, created.isoformat() if created else None, r.user)
        if scores[place] > 0:
            score = float(scores[place])
            found.append(SensitiveMemory(r.memory_id, row.reason, score, *shown, row.vault_path))
    return SensitiveAnswer(tuple(found), str(source), len(held))
