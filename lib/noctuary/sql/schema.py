"""What `noctuary sql` shows: tables, columns, types and what they mean; documented in docs/sql.md.

What belongs here: names and types, in the order in which they are shown. What does not: where the
values come from (`rows`).
"""

from __future__ import annotations

from dataclasses import dataclass

TEXT = "VARCHAR"
TEXTS = "VARCHAR[]"
WHOLE = "BIGINT"
REAL = "DOUBLE"
FLAG = "BOOLEAN"
MOMENT = "TIMESTAMP"
"""UTC, to the microsecond."""
VECTOR = "FLOAT[]"


@dataclass(frozen=True, slots=True)
class Column:
    """One column.

    Attributes:
        name: As queries call it.
        type: A type of DuckDB.
        about: What it holds, with unit and range; what null means, where it can be.
    """

    name: str
    type: str
    about: str


@dataclass(frozen=True, slots=True)
class Table:
    """One table.

    Attributes:
        name: As queries call it.
        about: What a row is.
        columns: In order.
    """

    name: str
    about: str
    columns: tuple[Column, ...]


def _table(name: str, about: str, *columns: tuple[str, str, str]) -> Table:
    return Table(name, about, tuple(Column(*column) for column in columns))


_VALID = (
    ("valid_from", MOMENT, "from when it holds; null: undated"),
    ("valid_to", MOMENT, "until before when; null: still"),
    ("recorded_at", MOMENT, "when the store wrote the evidence"),
    ("retracted_at", MOMENT, "when the store wrote what ended it; null: nothing did"),
)
_CHARS = (
    ("start_char", WHOLE, "first character of the evidence in the content; null: a field, or none"),
    ("end_char", WHOLE, "one past its last character"),
)

TABLES = (
    _table(
        "memories",
        "a memory of the snapshot",
        ("memory_id", TEXT, "its id in the source, as text"),
        ("position", WHOLE, "its place in the snapshot, from 0"),
        ("content", TEXT, "its text"),
        ("category", TEXT, "as the source says"),
        ("tags", TEXT, "as the source says"),
        ("expanded_keywords", TEXT, "as the source says"),
        ("importance", REAL, "0 to 1"),
        ("created_at", MOMENT, "null: undated"),
        ("updated_at", MOMENT, "null: undated"),
        ("session_id", TEXT, "null: no session"),
        ("wing", TEXT, "null: no wing"),
        ("room", TEXT, "null: no room"),
        ("user", TEXT, "whose it is; null: nobody's"),
        ("is_turn", FLAG, "a turn of a conversation"),
        ("content_hash", TEXT, "of every field but the position"),
    ),
    _table(
        "concepts",
        "something that memories are about or name",
        ("concept_id", TEXT, "hash of the canonical name"),
        ("name", TEXT, "canonical name"),
        ("kind", TEXT, "person, tag, date ..."),
        ("aliases", TEXTS, "other names"),
        ("memories", WHOLE, "memories that hold it"),
    ),
    _table(
        "mentions",
        "a place where a memory holds a concept",
        ("concept_id", TEXT, "the concept"),
        ("memory_id", TEXT, "the memory"),
        ("role", TEXT, "about, mentions, author, speaker"),
        *_CHARS,
    ),
    _table(
        "edges",
        "a step that the graph walk can take from a memory to a memory",
        ("source_id", TEXT, "memory that it leaves"),
        ("target_id", TEXT, "memory that it reaches"),
        ("relation", TEXT, "mentions_subject, mentions_tag, next_turn, previous_turn ..."),
        ("weight", REAL, "above 0, at most 1"),
        ("concept_id", TEXT, "the concept that is the evidence; null: none"),
        *_CHARS,
        *_VALID,
    ),
    _table(
        "concept_edges",
        "a statement about two concepts",
        ("source_concept_id", TEXT, "the subject"),
        ("source_name", TEXT, "its canonical name"),
        ("relation", TEXT, "works_at, part_of ..."),
        ("target_concept_id", TEXT, "the object"),
        ("target_name", TEXT, "its canonical name"),
        ("weight", REAL, "0 to 1: grows with the memories that state it"),
        ("evidence_ids", TEXTS, "memories that state it"),
        *_VALID,
    ),
    _table(
        "supersessions",
        "a memory that a newer one replaced",
        ("older_id", TEXT, "the replaced memory"),
        ("newer_id", TEXT, "what replaced it"),
        ("head_id", TEXT, "the newest of the chain"),
        ("reason", TEXT, "how it was noticed"),
        ("confidence", WHOLE, "0 to 2"),
        ("similarity", REAL, "cosine, where it was measured"),
        ("age_gap_days", WHOLE, "days between the two"),
        ("concept_id", TEXT, "what both are about; null: not told"),
        ("evidence_id", TEXT, "memory that says so"),
        *_CHARS,
        ("valid_to", MOMENT, "until when the older one held"),
        ("recorded_at", MOMENT, "when the store wrote the newer one"),
    ),
    _table(
        "clusters",
        "turns of one session that belong together",
        ("cluster_id", TEXT, "its id"),
        ("session_id", TEXT, "the session"),
        ("ordinal", WHOLE, "its place in the session, from 0"),
        ("first_at", MOMENT, "its first turn"),
        ("last_at", MOMENT, "its last turn"),
        ("is_trivial", FLAG, "a single turn: nothing to sum up"),
    ),
    _table(
        "summaries",
        "an accepted summary",
        ("summary_id", TEXT, "its id"),
        ("cluster_id", TEXT, "what it sums up"),
        ("session_id", TEXT, "the session"),
        ("text", TEXT, "its text"),
        ("method", TEXT, "how it was written"),
        ("first_at", MOMENT, "its first source"),
        ("last_at", MOMENT, "its last source"),
        ("source_tokens", WHOLE, "length of the sources"),
        ("summary_tokens", WHOLE, "length of the text"),
        ("align", REAL, "likeness to its sources; null: not measured"),
        ("cover", REAL, "share of the sources that it covers; null: not measured"),
        ("confidence", REAL, "0 to 1; null: not measured"),
        ("decay_rate", REAL, "1 - confidence; null: not measured"),
        ("facts", TEXT, "fact report as JSON; null: none"),
        ("plan_id", TEXT, "compaction plan that it belongs to; null: a summary of turns"),
    ),
    _table(
        "summary_sources",
        "a memory that a summary stands for",
        ("summary_id", TEXT, "the summary"),
        ("place", WHOLE, "in order of time, from 0"),
        ("memory_id", TEXT, "the memory"),
    ),
    _table(
        "vectors",
        "the vector of a memory; no rows where the snapshot was built without an encoder",
        ("memory_id", TEXT, "the memory"),
        ("vector", VECTOR, "of length 1"),
    ),
    _table(
        "access",
        "a memory that a recall returned, of the last 90 days",
        ("retrieved_at", MOMENT, "when"),
        ("memory_id", TEXT, "the memory; it need not be in the snapshot any more"),
        ("rank", WHOLE, "its place in the answer, from 1"),
        ("snapshot_id", TEXT, "the snapshot that answered"),
    ),
    _table(
        "usage",
        "what the last night counted about a memory",
        ("memory_id", TEXT, "the memory"),
        ("retrievals", WHOLE, "over all time; null: never"),
        ("recent", WHOLE, "inside the window; null: never"),
        ("days", WHOLE, "distinct days with a retrieval; null: never"),
        ("last_at", MOMENT, "last retrieval, else the creation; null: neither is known"),
        ("ltp_multiplier", REAL, "at least 1; null: not scanned"),
        ("ltp_score", REAL, "0 to 1; null: not scanned"),
        ("decayed_score", REAL, "0 to 1; null: not scanned"),
    ),
    _table(
        "archived",
        "a memory that a plan in force has archived",
        ("memory_id", TEXT, "the memory"),
        ("plan_id", TEXT, "the plan"),
        ("successor_id", TEXT, "what stands for it"),
        ("summary_id", TEXT, "the summary of its group; null: the successor stands alone"),
        ("applied_at", MOMENT, "when the plan was applied"),
    ),
    _table(
        "evaluation",
        "a metric of the last evaluated night, which need not be the one that serves",
        ("query_group", TEXT, "labelled, exact ..."),
        ("arm", TEXT, "served, or an alternative that was compared"),
        ("stratum", TEXT, "kind of query; null: all of the group"),
        ("metric", TEXT, "recall@5, ndcg@10 ..."),
        ("mean", REAL, "over the queries"),
        ("low", REAL, "lower end of its 95 % interval; null: not given"),
        ("high", REAL, "upper end; null: not given"),
        ("queries", WHOLE, "how many were asked"),
    ),
    _table(
        "snapshot",
        "a fact about what serves",
        ("key", TEXT, "snapshot_id, digest, built_at, count_memories ..."),
        ("value", TEXT, "as text"),
    ),
)

TABLE_NAMES = tuple(table.name for table in TABLES)


def find_table(name: str) -> Table:
    """Return a table by its name.

    Raises:
        KeyError: There is none of that name.
    """
    return {table.name: table for table in TABLES}[name]
