"""What a night asks its store: labelled queries, written ones, phrases, and questions by rule."""

from __future__ import annotations

import heapq
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

import numpy as np

from noctuary.core.errors import FileFaultsError, SourceError
from noctuary.core.files import hash_text
from noctuary.core.store import DatabaseName, SourceName
from noctuary.evaluate.labels import QUERIES_FILE, USER_KEY, Query, QuerySet, read_queries
from noctuary.evaluate.queries import build_exact_queries
from noctuary.recall.query import Mask
from noctuary.recall.reader import SnapshotReader
from noctuary.sources.corpus import RecordFile, iter_batches
from noctuary.text.marks import plural
from noctuary.text.tokens import UNSPACED, regex_class, tokenize

# Queries with an answer that is known: the owner's, written ones, phrases of the corpus.


LABELLED = "labelled"
GENERATED = "generated"
EXACT = "exact"
UNANSWERABLE = "unanswerable"
GROUPS = (LABELLED, GENERATED, EXACT)
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

    def texts(self) -> list[str]:
        """Return what is asked, the unanswerable ones last."""
        asked = (*self.groups.values(), self.unanswerable)
        return [query.text for queries in asked for query in queries]

    def to_json(self) -> dict[str, Any]:
        """Return plain values, texts included."""
        return {
            "groups": {name: [q.to_json() for q in group] for name, group in self.groups.items()},
            "unanswerable": [query.to_json() for query in self.unanswerable],
            "notes": list(self.notes),
        }

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> Self:
        """Read back what `to_json` returned."""
        groups = {
            name: tuple(map(Query.from_json, raw["groups"][name]))
            for name in GROUPS
            if name in raw["groups"]
        }
        unanswerable = tuple(map(Query.from_json, raw["unanswerable"]))
        return cls(groups, unanswerable, tuple(raw["notes"]))


def find_labels(source: SourceName, configured: str) -> Path | None:
    """Return the file of labelled queries: the configured one, else the one beside the source.

    Beside a database there is none.
    """
    if configured:
        return Path(configured).expanduser()
    if isinstance(source, DatabaseName):
        return None
    path = (source if source.is_dir() else source.parent) / QUERIES_FILE
    return path if path.is_file() else None


def gather_questions(
    memories: Path, labels: Path | None, written: Sequence[Query], exact: int
) -> Questions:
    """Gather a night's queries; a fault in the owner's file is a note, it must not stop a night.

    Args:
        memories: The exported corpus.
        labels: The owner's file, if there is one.
        written: Queries that a model wrote.
        exact: How many phrases of the corpus are wanted, at least 0.
    """
    found, notes = _read_labelled(labels)
    wanted = {i for query in (*found.ranked, *written) for i in query.relevant_ids}
    owners = _owners(memories, wanted)
    labelled, gone = _answerable(found.ranked, owners)
    if gone:
        notes.append(f"{plural(gone, 'label')} of memories that the corpus does not hold")
    if dropped := len(found.ranked) - len(labelled):
        lost = plural(dropped, "query", "queries")
        notes.append(f"{lost} without a label left, not asked")
    phrases = build_exact_queries(RecordFile(memories), exact)
    if not exact:
        notes.append("the exact group is switched off (evaluation.exact_queries = 0)")
    elif len(phrases) < exact:
        held = f"only {len(phrases)} of {exact} memories hold a phrase"
        notes.append(f"{held} that no other memory holds")
    groups = {
        LABELLED: _ask_as_owner(labelled, owners),
        GENERATED: _ask_as_owner(_answerable(written, owners)[0], owners),
        EXACT: phrases,
    }
    asked = {name: queries for name, queries in groups.items() if queries}
    return Questions(asked, found.unanswerable, tuple(notes))


def _read_labelled(path: Path | None) -> tuple[QuerySet, list[str]]:
    """Return what the owner's file holds, and why it is not used if it is not."""
    if path is None:
        note = f"no {QUERIES_FILE} beside the source: only the corpus's own phrases are asked"
    else:
        try:
            return read_queries(path), []
        except FileFaultsError as error:
            # Not the message: it quotes values, and this sentence goes into Dagster's event log.
            first = error.faults[0]
            said = f"{len(error.faults)} faults, the first on line {first.line} ({first.kind})"
            hint = f"`noctuary evaluate check {path.parent}` lists them"
            note = f"{path.name} is not used: {said}; {hint}"
        except (SourceError, OSError) as error:
            note = f"labelled queries not used: {error}"
    return QuerySet((), ()), [note]


def _owners(memories: Path, wanted: Collection[str]) -> dict[str, str | None]:
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


# Questions that a store can answer, made by rule of its own memories: no label, no model.
#
# A question of words that stand in its memory is easier than one that somebody asks. So three
# difficulties, each without the rarest word, in an order of their own: nearly all words, every
# second one, and a few that are not rare, with what the memory is about called by its concept's
# name.


MEMORIES_ASKED = 60
"""More narrow what is known of a threshold and cost a night a second a dozen."""


MIN_WORDS = 5
"""Words of the shortest memory that is asked for: of a shorter one nothing can be left out."""


MAX_WORDS = 8
"""Words of the longest question."""


_PIECE_CHARS = 4
"""Characters of what counts as a word where no spaces separate any."""


_EVERYDAY = Path(__file__).with_name("everyday.txt")


def read_everyday() -> list[str]:
    """Return prompts that are nobody's memory: chores, small talk, general knowledge, commands."""
    return _EVERYDAY.read_text(encoding="utf-8").splitlines()


def make_questions(
    reader: SnapshotReader, mask: Mask | None = None, memories: int = MEMORIES_ASKED
) -> Iterator[tuple[str, str]]:
    """Yield questions of some memories, each with the id of the one that it was made of.

    Memories are taken in the order of a hash of their id, so that one that is added displaces few.

    Args:
        reader: The snapshot.
        mask: What may be seen, shape (n,); None for everything.
        memories: How many are asked for, where as many are long enough.
    """
    seen = np.arange(reader.count) if mask is None else np.flatnonzero(mask)
    named = reader.memory_ids(seen.tolist())
    first = heapq.nsmallest(2 * memories, ((hash_text(i), p) for p, i in named.items()))
    rows = reader.describe([position for _, position in first])
    asked = 0
    for _, position in first:
        words = _words(reader, rows[position]["content"])
        if len(words) >= MIN_WORDS and asked < memories:
            asked += 1
            for some in _asked(words, _name(reader, position)):
                yield " ".join(sorted(some, key=hash_text)), named[position]


def _asked(words: Sequence[str], name: str | None) -> tuple[Sequence[str], ...]:
    """Return the words of each difficulty; given the rarest first."""
    rest = words[1:]
    few = rest[len(rest) // 3 :][:2]
    return rest[:MAX_WORDS], rest[::2][:MAX_WORDS], [*few, name or rest[0]]


def _words(reader: SnapshotReader, text: str) -> list[str]:
    """Return the distinct content words of a text, the rarest first."""
    unspaced = regex_class(UNSPACED)
    pieces = re.findall(rf"[{unspaced}]{{2,{_PIECE_CHARS}}}|[^\W{unspaced}]+", text)
    rarity: dict[str, float] = {}
    for piece in dict.fromkeys(pieces):
        slices = reader.look_up_terms(tokenize(piece))
        if slices and not (len(piece) < 3 and piece.isascii() and piece.isalpha()):
            rarity[piece] = min(stop - start for start, stop in slices)
    return sorted(rarity, key=lambda piece: (rarity[piece], hash_text(piece)))


def _name(reader: SnapshotReader, position: int) -> str | None:
    """Return the name of a concept that a memory mentions, None where it mentions none."""
    places = np.flatnonzero(reader.mentions.positions == position)
    if not places.size:
        return None
    ordinal = np.searchsorted(reader.mentions.indptr, places[0], side="right") - 1
    return reader.concept_name(int(ordinal))
