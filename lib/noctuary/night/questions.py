"""What the night asks itself: phrases of the corpus, the owner's labelled queries, written ones.

What belongs here: gathering queries from their three origins, and keeping them beside the results.
What does not: asking them.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

from noctuary.corpus.columns import iter_batches
from noctuary.corpus.record_file import RecordFile
from noctuary.errors import FileFaultsError, SourceError
from noctuary.evaluate.exact_stratum import build_exact_queries
from noctuary.evaluate.labels.queries import Query, read_queries
from noctuary.files import write_text
from noctuary.night.context import EVALUATION_QUERIES, GENERATED, MEMORIES, Night
from noctuary.source_name import DatabaseName
from noctuary.types import MemoryRecord

QUERIES_FILE = "queries.jsonl"
LABELLED = "labelled"
GENERATED_GROUP = "generated"
EXACT = "exact"
UNANSWERABLE = "unanswerable"
USER_KEY = "user"
"""Extra key of a query: on whose behalf it is asked."""
GROUPS = (LABELLED, GENERATED_GROUP, EXACT)
"""Groups that are ranked, in the order of reports; the unanswerable ones are kept apart."""


@dataclass(frozen=True, slots=True)
class Questions:
    """Queries by group, and what has to be said about them.

    Attributes:
        groups: Ranked queries by group, in the order of GROUPS; only groups that hold one.
        unanswerable: The owner's queries that nothing answers.
        notes: One sentence per thing that was left out.
    """

    groups: Mapping[str, tuple[Query, ...]] = field(default_factory=dict[str, tuple[Query, ...]])
    unanswerable: tuple[Query, ...] = ()
    notes: tuple[str, ...] = ()

    def counts(self) -> dict[str, int]:
        """Return how many queries each group holds."""
        found = {name: len(queries) for name, queries in self.groups.items()}
        return {**found, UNANSWERABLE: len(self.unanswerable)}


def labelled_path(night: Night) -> Path | None:
    """Return the file of labelled queries: the configured one, else the one beside the source.

    Beside a database there is none.
    """
    configured = night.settings.evaluation.queries
    if configured:
        return Path(configured).expanduser()
    source = night.source
    if isinstance(source, DatabaseName):
        return None
    folder = source if source.is_dir() else source.parent
    path = folder / QUERIES_FILE
    return path if path.is_file() else None


def gather_questions(night: Night) -> Questions:
    """Gather tonight's queries; a fault in the owner's file is a note, it must not stop a night."""
    path, written = labelled_path(night), read_generated(night)
    found, notes = _read_labelled(path)
    labels = (i for query in (*found.ranked, *written) for i in query.relevant_ids)
    owners = _owners(night.work(MEMORIES), frozenset(labels))
    labelled, left_out = _answerable_noted(found.ranked, owners)
    exact, said = _exact(RecordFile(night.work(MEMORIES)), night.settings.evaluation.exact_queries)
    groups = {
        LABELLED: _ask_as_owner(labelled, owners),
        GENERATED_GROUP: _ask_as_owner(_answerable(written, owners)[0], owners),
        EXACT: exact,
    }
    return Questions(
        {name: queries for name, queries in groups.items() if queries},
        found.unanswerable,
        (*notes, *left_out, *said),
    )


def write_questions(night: Night, questions: Questions) -> None:
    """Keep the queries beside the results that rest on them."""
    document = {
        "groups": {
            name: [query_to_json(q) for q in group] for name, group in questions.groups.items()
        },
        "unanswerable": [query_to_json(query) for query in questions.unanswerable],
        "notes": list(questions.notes),
    }
    text = json.dumps(document, ensure_ascii=False, sort_keys=True)
    write_text(night.work(EVALUATION_QUERIES), text + "\n")


def read_questions(night: Night) -> Questions:
    """Return the queries that the last evaluation asked."""
    raw: dict[str, Any] = json.loads(night.work(EVALUATION_QUERIES).read_text(encoding="utf-8"))
    return Questions(
        {name: tuple(map(_from_json, rows)) for name, rows in _in_order(raw["groups"]).items()},
        tuple(map(_from_json, raw["unanswerable"])),
        tuple(raw["notes"]),
    )


def read_generated(night: Night) -> tuple[Query, ...]:
    """Return the written queries; none where writing them is off or has not run."""
    try:
        document = json.loads(night.work(GENERATED).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return ()
    return tuple(map(_from_json, document["queries"]))


class _Labelled(NamedTuple):
    """The owner's queries, labelled in memory ids."""

    ranked: tuple[Query, ...] = ()
    unanswerable: tuple[Query, ...] = ()


def _read_labelled(path: Path | None) -> tuple[_Labelled, tuple[str, ...]]:
    """Return what the owner's file holds, and why it is not used if it is not."""
    if path is None:
        note = f"no {QUERIES_FILE} beside the source: only the corpus's own phrases are asked"
        return _Labelled(), (note,)
    try:
        found = read_queries(path)
    except FileFaultsError as error:
        # Not the message: it quotes values, and this sentence goes into Dagster's event log.
        first = error.faults[0]
        said = f"{len(error.faults)} faults, the first on line {first.line} ({first.kind})"
        hint = f"`noctuary evaluate check {path.parent}` lists them"
        return _Labelled(), (f"{path.name} is not used: {said}; {hint}",)
    except (SourceError, OSError) as error:
        return _Labelled(), (f"labelled queries not used: {error}",)
    return _Labelled(tuple(found.ranked), tuple(found.unanswerable)), ()


def _answerable_noted(
    ranked: Sequence[Query], known: Collection[str]
) -> tuple[tuple[Query, ...], tuple[str, ...]]:
    kept, gone = _answerable(ranked, known)
    dropped = len(ranked) - len(kept)
    notes = [f"{gone} labels name memories that the corpus does not hold"] if gone else []
    notes += [f"{dropped} queries lost all their labels and are not asked"] if dropped else []
    return kept, tuple(notes)


def _owners(memories: Path, wanted: frozenset[str]) -> dict[str, str | None]:
    """Return those of some ids that the corpus holds, with the named user whose each is."""
    if not wanted:
        return {}
    columns = ("memory_id", "user")
    return {
        memory_id: user or None
        for batch in iter_batches(memories, columns)
        for memory_id, user in zip(*(batch.column(c).to_pylist() for c in columns), strict=True)
        if memory_id in wanted
    }


def _answerable(queries: Sequence[Query], known: Collection[str]) -> tuple[tuple[Query, ...], int]:
    """Return the queries with the labels that the corpus holds, and how many labels it does not.

    A labelled memory may be deleted or turn sensitive; that must not keep a night from publishing.
    """
    kept = [
        replace(
            query,
            relevant_ids=tuple(i for i in query.relevant_ids if i in known),
            grades={i: grade for i, grade in query.grades.items() if i in known},
        )
        for query in queries
    ]
    before, after = (sum(len(q.relevant_ids) for q in group) for group in (queries, kept))
    return tuple(query for query in kept if query.relevant_ids), before - after


def _ask_as_owner(queries: Sequence[Query], owners: Mapping[str, str | None]) -> tuple[Query, ...]:
    """Say on whose behalf each query is asked: nobody else may see a named user's memories.

    That is the user whom the query names, or else the owner of its first labelled memory that has
    one.
    """
    asked: list[Query] = []
    for query in queries:
        named = query.extras.get(USER_KEY) or query.extras.get("user_id")
        found = named or next((o for i in query.relevant_ids if (o := owners.get(i))), None)
        asked.append(replace(query, extras={USER_KEY: str(found)} if found else {}))
    return tuple(asked)


def _exact(
    records: Sequence[MemoryRecord], wanted: int
) -> tuple[tuple[Query, ...], tuple[str, ...]]:
    if not wanted:
        return (), ("the exact group is switched off (evaluation.exact_queries = 0)",)
    queries = build_exact_queries(records, wanted).queries
    short = wanted - len(queries)
    if not short:
        return queries, ()
    note = f"only {len(queries)} of {wanted} memories hold a phrase that no other memory holds"
    return queries, (note,)


def query_to_json(query: Query) -> dict[str, Any]:
    """Return a query as plain values, without the extra keys that the night does not read."""
    kept = {USER_KEY: query.extras[USER_KEY]} if USER_KEY in query.extras else {}
    row = asdict(replace(query, extras=kept))
    return {**row, "as_of": query.as_of.isoformat() if query.as_of else None}


def _from_json(row: Mapping[str, Any]) -> Query:
    moment = row["as_of"]
    fields: dict[str, Any] = {
        **row,
        "relevant_ids": tuple(row["relevant_ids"]),
        "as_of": datetime.fromisoformat(moment) if moment else None,
    }
    return Query(**fields)


def _in_order(groups: Mapping[str, Any]) -> dict[str, Any]:
    return {name: groups[name] for name in GROUPS if name in groups}
