"""What the night asks itself: phrases of the corpus, the owner's labels, questions by rule."""

from __future__ import annotations

import heapq
import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from noctuary.core.errors import ConfigError, FileFaultsError, SourceError
from noctuary.core.files import hash_text, write_text
from noctuary.core.manifest import Manifest
from noctuary.core.settings import EvaluationSettings
from noctuary.core.store import DatabaseName
from noctuary.core.types import MemoryRecord
from noctuary.embed.documents import embed_texts, text_key
from noctuary.embed.fingerprint import EncoderFingerprint
from noctuary.embed.hosted import HostedEncoder
from noctuary.evaluate.generated import Generated, Pair, generate_queries
from noctuary.evaluate.labels import Query, read_queries
from noctuary.evaluate.queries import build_exact_queries
from noctuary.night.context import EVALUATION_QUERIES, GENERATED, HOSTED, MEMORIES, Night
from noctuary.night.corpus import CORPUS
from noctuary.night.graph import linked_pairs
from noctuary.recall.engine import Recaller
from noctuary.recall.query import Mask
from noctuary.recall.query_encoder import remember_query
from noctuary.recall.reader import SnapshotReader
from noctuary.sources.corpus import RecordFile, iter_batches, read_records
from noctuary.text.tokens import UNSPACED, regex_class, tokenize
from noctuary.work.http import Endpoint, read_api_key
from noctuary.work.stage import Memo, Stage, StageResult

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


# Vectors of queries and prompts before recall: of a provider in batches, of everyday ones once.
#
# Recall asks a provider for one query at a time, once, and answers without a vector where that
# fails. In an evaluation this would be a drop that is none, so there it is asked patiently, and a
# night whose provider is down fails with a sentence.


def fetch_query_vectors(night: Night, manifest: Manifest, texts: Sequence[str]) -> int:
    """Ask for the vectors of queries that are not known, and let this process's recalls find them.

    Nothing is done for a snapshot whose vectors were made here, or by another model than tonight's.

    Args:
        night: The night.
        manifest: Of the snapshot that will be asked.
        texts: The queries.

    Returns:
        How many the provider was asked for.

    Raises:
        EncoderError: The provider gives none, or the budget does not cover them.
    """
    provider = night.settings.encoder.provider
    if provider not in HOSTED or manifest.encoder is None:
        return 0
    fingerprint = night.fingerprint()
    if EncoderFingerprint.from_json(manifest.encoder) != fingerprint:
        return 0
    with Memo.open(night.paths.memo) as memo:
        found = embed_texts(
            texts,
            memo,
            fingerprint,
            lambda: _Queries(night.hosted_encoder()),
            night.progress,
            face=f"{provider}:query",
            batches_per_write=1,
        )
    for text, vector in zip(texts, found.vectors, strict=True):
        remember_query(night.paths, manifest, text, vector.copy())
    return found.computed


def everyday_kind(encoder_digest: str) -> str:
    """Return the memo's kind of the vectors of everyday prompts, as recall encodes them."""
    return f"everyday:{encoder_digest}"


def everyday_keys() -> list[str]:
    """Return the memo's keys of everyday prompts, in their order."""
    return [text_key(prompt) for prompt in read_everyday()]


def fetch_everyday_vectors(night: Night, recaller: Recaller) -> NDArray[np.float32] | None:
    """Return the vectors of everyday prompts, encoded once per encoder; None without an encoder.

    Of shape (prompts, d).
    """
    manifest, prompts, keys = recaller.reader.manifest, read_everyday(), everyday_keys()
    if recaller.reader.vectors is None or manifest.encoder_digest is None:
        return None
    kind = everyday_kind(manifest.encoder_digest)
    with Memo.open(night.paths.memo) as memo:
        known = memo.get_many(kind, keys)
        missing = [p for key, p in zip(keys, prompts, strict=True) if key not in known]
        fetch_query_vectors(night, manifest, missing)
        world = recaller.live_world()
        made = {
            text_key(prompt): np.asarray(world.query_vector(prompt), dtype=np.float32).tobytes()
            for prompt in missing
        }
        memo.put_many(kind, made)
    return np.stack([np.frombuffer((known | made)[key], dtype=np.float32) for key in keys])


class _Queries:
    """A hosted encoder whose texts are queries."""

    def __init__(self, encoder: HostedEncoder) -> None:
        self._encoder = encoder

    def iter_document_batches(
        self, texts: Sequence[str]
    ) -> Iterator[tuple[list[int], NDArray[np.float32]]]:
        """Yield places and vectors; see `DocumentEncoder`."""
        return self._encoder.iter_batches(texts, "query")


# What the night asks itself: phrases of the corpus, the owner's labelled queries, written ones.


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
    queries = build_exact_queries(records, wanted)
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


# Stage generated_queries: queries that a language model wrote about tonight's corpus.


GENERATED_QUERIES = Stage("generated_queries", "1", (GENERATED,))
ANSWERS_KIND = "generated_queries:1"
"""Kind of the memo: answers of both models."""

PAIRS_PER_MEMORY = 0.5
"""Multi-hop questions per paraphrase: they cost two grades each and need linked memories."""


@dataclass(frozen=True, slots=True)
class _MemoCache:
    """The night's memo as the generator's cache."""

    memo: Memo

    def get(self, key: str) -> bytes | None:
        """Return a remembered answer, or None."""
        return self.memo.get_many(ANSWERS_KIND, [key]).get(key)

    def put(self, key: str, value: bytes) -> None:
        """Remember an answer durably."""
        self.memo.put_many(ANSWERS_KIND, {key: value})


def write_queries(night: Night) -> StageResult:
    """Let the configured models write and grade queries; without any, keep none.

    Runs on every night while it is switched on, because an endpoint may have been down; what is
    known already is not asked again.
    """
    chosen = night.settings.evaluation
    on = bool(chosen.enabled and chosen.generator_url)

    def body() -> tuple[int, dict[str, Any]]:
        if not on:
            _write(night, Generated())
            return 0, {"note": "off: no evaluation.generator_url is set"}
        found = _generate(night, chosen)
        _write(night, found)
        return len(found.queries), _facts(found)

    inputs = {"on": on, "corpus": night.result_of(CORPUS).digest if on else None}
    return night.finish(night.run(GENERATED_QUERIES, inputs, body, always=on))


def live_answers(night: Night) -> list[str]:
    """Return the keys of the answers that are still in use."""
    try:
        document = json.loads(night.work(GENERATED).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return []
    return list(document["keys"])


def _generate(night: Night, chosen: EvaluationSettings) -> Generated:
    key = read_api_key(chosen.api_key_variable, "evaluation.api_key_variable")
    records = read_records(night.work(MEMORIES))
    asked = choose_memories(records, chosen.generated_queries)
    pairs = choose_pairs(
        records,
        linked_pairs(night),
        int(chosen.generated_queries * PAIRS_PER_MEMORY),
    )
    try:
        generator = Endpoint(chosen.generator_url, chosen.generator_model, key)
        judge = Endpoint(chosen.judge_url, chosen.judge_model, key)
    except ValueError as error:
        raise ConfigError(f"evaluation.generator_* or judge_*: {error}") from error
    with Memo.open(night.paths.memo) as memo:
        return generate_queries(
            asked, pairs, generator, judge, _MemoCache(memo), progress=night.progress
        )


def choose_memories(records: Sequence[MemoryRecord], wanted: int) -> list[MemoryRecord]:
    """Return memories to paraphrase, by hash of their content: new ones change few choices.

    Those of named users are left out: their texts must not leave for an endpoint unasked.
    """
    free = [record for record in records if record.user is None]
    return sorted(free, key=lambda record: hash_text(record.content))[: max(wanted, 0)]


def choose_pairs(
    records: Sequence[MemoryRecord], links: Iterable[tuple[int, int]], wanted: int
) -> list[Pair]:
    """Return linked pairs of memories of nobody in particular, by hash of both contents."""
    found: dict[str, Pair] = {}
    for left, right in links:
        pair = records[min(left, right)], records[max(left, right)]
        if left != right and all(record.user is None for record in pair):
            found[hash_text(pair[0].content, pair[1].content)] = pair
    return [found[key] for key in sorted(found)[: max(wanted, 0)]]


def _write(night: Night, found: Generated) -> None:
    document = {
        "queries": [query_to_json(query) for query in found.queries],
        "rejected": [asdict(rejected) for rejected in found.rejected],
        "keys": sorted(found.keys),
    }
    write_text(night.work(GENERATED), json.dumps(document, ensure_ascii=False) + "\n")


def _facts(found: Generated) -> dict[str, Any]:
    facts: dict[str, Any] = {
        "asked": found.n_asked,
        "pending": found.n_pending,
        "rejected": len(found.rejected),
        "faults": dict(found.faults),
    }
    return {**facts, "note": "; ".join(found.warnings)} if found.warnings else facts
