"""Group evaluate: what the night asks itself, and what follows from it.

Metadata holds numbers, query ids and plots; never the text of a query or a memory.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

import dagster as dg
import numpy as np
from numpy.typing import NDArray

from noctuary.core.errors import ConfigError, EncoderError, FileFaultsError, SourceError
from noctuary.core.files import hash_file, hash_json, hash_text, write_text
from noctuary.core.manifest import Manifest
from noctuary.core.settings import EvaluationSettings
from noctuary.core.store import DatabaseName
from noctuary.core.types import SILENT, MemoryRecord, Progress
from noctuary.embed.documents import embed_texts, put_vectors, read_vectors, text_key, vector_kind
from noctuary.embed.fingerprint import EncoderFingerprint
from noctuary.embed.hosted import HostedEncoder
from noctuary.evaluate.abstain import Prompted, ask_prompts, find_asker, scope_mask
from noctuary.evaluate.decide import (
    CHALLENGERS,
    MAX_RECALL_LOSS,
    MIN_ANSWERABLE,
    Abstention,
    Calibrated,
    Challenger,
    Decision,
    Guard,
    calibrate,
    decide,
    floor_score,
    judge_abstention,
    reached_by,
)
from noctuary.evaluate.generated import Generated, Pair, generate_queries
from noctuary.evaluate.labels import Query, read_queries
from noctuary.evaluate.page import as_markdown_image, plot_risk_coverage
from noctuary.evaluate.queries import build_exact_queries
from noctuary.evaluate.questions import make_questions, read_everyday
from noctuary.evaluate.run import Run, RunPlan, run_retriever
from noctuary.evaluate.scores import Scores, compare, score_run, summarize
from noctuary.recall.engine import Recaller
from noctuary.recall.profile import RetrievalProfile
from noctuary.recall.query import Scope
from noctuary.recall.query_encoder import remember_query, warm_up
from noctuary.recall.reader import SnapshotReader
from noctuary.recall.result import (
    WORDS,
    WORDS_AND_VECTORS,
    Calibration,
)
from noctuary.sources.corpus import RecordFile, iter_batches, read_records
from noctuary.text.marks import plural
from noctuary.work.content import ContentStore
from noctuary.work.http import Endpoint, read_api_key
from noctuary.work.stage import Stage, StageResult
from noctuary_assets import graph, ingest, pack
from noctuary_assets.graph import linked_pairs
from noctuary_assets.ingest import CORPUS
from noctuary_assets.night import (
    ABSTENTION,
    DECISION,
    EVALUATION,
    EVALUATION_QUERIES,
    EVALUATION_RUNS,
    GENERATED,
    HOSTED,
    MEMORIES,
    Night,
    store_profile,
)
from noctuary_assets.pack import SERVING_PACK, pack_path
from noctuary_assets.reporting import report_stage

# What the night asks itself: phrases of the corpus, the owner's labels, questions by rule.


# Questions that a store can answer, made by rule of its own memories: no label, no model.
#
# A question of words that stand in its memory is easier than one that somebody asks. So three
# difficulties, each without the rarest word, in an order of their own: nearly all words, every
# second one, and a few that are not rare, with what the memory is about called by its concept's
# name.


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
    found = embed_texts(
        texts,
        night.content(vector_kind(fingerprint, f"{provider}:query")),
        fingerprint,
        lambda: _Queries(night.hosted_encoder()),
        night.progress,
        batches_per_write=1,
    )
    for text, vector in zip(texts, found.vectors, strict=True):
        remember_query(night.paths, manifest, text, vector.copy())
    return found.computed


def everyday_kind(encoder_digest: str) -> str:
    """Return the kind of the vectors of everyday prompts, as recall encodes them."""
    return f"everyday:{encoder_digest}"


def everyday_keys() -> list[bytes]:
    """Return the keys of everyday prompts, in their order."""
    return [text_key(prompt) for prompt in read_everyday()]


def fetch_everyday_vectors(night: Night, recaller: Recaller) -> NDArray[np.float32] | None:
    """Return the vectors of everyday prompts, encoded once per encoder; None without an encoder.

    Of shape (prompts, d).
    """
    manifest, prompts, keys = recaller.reader.manifest, read_everyday(), everyday_keys()
    own = recaller.reader.vectors
    if own is None or manifest.encoder_digest is None:
        return None
    store = night.content(everyday_kind(manifest.encoder_digest))
    vectors = read_vectors(store, keys, own.shape[1])
    lacking = np.flatnonzero(~np.isfinite(vectors).all(axis=1)).tolist()
    fetch_query_vectors(night, manifest, [prompts[at] for at in lacking])
    world = recaller.live_world()
    for at in lacking:
        vectors[at] = world.query_vector(prompts[at])
    put_vectors(store, {keys[at]: vectors[at] for at in lacking})
    return vectors


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
    labels = f"{plural(gone, 'label')} of memories that the corpus does not hold"
    asked = f"{plural(dropped, 'query', 'queries')} without a label left, not asked"
    notes = [said for count, said in ((gone, labels), (dropped, asked)) if count]
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
WRITTEN_ANSWERS_KIND = "generated_queries:1"
"""Kind of what is kept: answers of both models."""

PAIRS_PER_MEMORY = 0.5
"""Multi-hop questions per paraphrase: they cost two grades each and need linked memories."""


def write_queries(night: Night) -> StageResult:
    """Let the configured models write and grade queries; without any, keep none.

    Runs on every night while it is switched on, because an endpoint may have been down; what is
    known already is not asked again.
    """
    chosen = night.settings.evaluation
    on = bool(chosen.enabled and chosen.generator_url)

    def body() -> tuple[int, dict[str, Any]]:
        if not on:
            _write_generated(night, Generated())
            return 0, {"note": "off: no evaluation.generator_url is set"}
        found = _generate(night, chosen)
        _write_generated(night, found)
        return len(found.queries), _generated_facts(found)

    inputs = {"on": on, "corpus": night.result_of(CORPUS).digest if on else None}
    return night.finish(night.run(GENERATED_QUERIES, inputs, body, always=on))


def live_answers(night: Night) -> list[bytes]:
    """Return the keys of the answers that are still in use."""
    try:
        document = json.loads(night.work(GENERATED).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return []
    return list(map(bytes.fromhex, document["keys"]))


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
    store = night.content(WRITTEN_ANSWERS_KIND)
    return generate_queries(asked, pairs, generator, judge, store, progress=night.progress)


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


def _write_generated(night: Night, found: Generated) -> None:
    document = {
        "queries": [query_to_json(query) for query in found.queries],
        "rejected": [asdict(rejected) for rejected in found.rejected],
        "keys": sorted(found.keys),
    }
    write_text(night.work(GENERATED), json.dumps(document, ensure_ascii=False) + "\n")


def _generated_facts(found: Generated) -> dict[str, Any]:
    facts: dict[str, Any] = {
        "asked": found.n_asked,
        "pending": found.n_pending,
        "rejected": len(found.rejected),
        "faults": dict(found.faults),
    }
    return {**facts, "note": "; ".join(found.warnings)} if found.warnings else facts


# Stages recall_evaluation, fusion_decision and recall_comparison.


# One snapshot and one profile as a retriever: what the night's evaluation asks.
#
# No metric, no stage.


KEPT_PER_WRITE = 64
"""Answers that a stop costs at most; a durable write each would cost more than most answers."""


@dataclass(frozen=True, slots=True)
class ProfileRetriever:
    """Asks a snapshot with one profile.

    Everything that the query's user may see is searched, whatever wing the query names, as far as
    it existed at the query's moment: finding the right wing is part of the work.

    Attributes:
        name: What reports call it.
        recaller: The pinned snapshot.
        profile: How it ranks.
    """

    name: str
    recaller: Recaller
    profile: RetrievalProfile

    def retrieve_hits(self, query: Query, k: int) -> list[tuple[str, float]]:
        """Return ids with their final scores, best first."""
        scope = Scope(as_of=query.as_of, user=query.extras.get(USER_KEY))
        found = self.recaller.recall(query.text, k, profile=self.profile, scope=scope)
        return [(str(memory.id), memory.final_score) for memory in found.memories]

    def retrieve(self, query: str, k: int) -> list[str]:
        """Return ids, best first."""
        found = self.recaller.recall(query, k, profile=self.profile)
        return [str(memory.id) for memory in found.memories]


class KeptAnswers:
    """What retrievers answered, written down as it comes: a night that is stopped asks none again.

    Ids and scores under a hash of what was asked; never a text. Publishing prunes it.

    Attributes:
        reused: Answers of an earlier night, so far.
    """

    def __init__(self, store: ContentStore) -> None:
        self._store = store
        self.reused = 0

    def ask(
        self,
        retriever: ProfileRetriever,
        queries: Sequence[Query],
        plan: RunPlan,
        progress: Progress,
    ) -> Run:
        """Ask every query that nobody has asked this snapshot, profile and archive."""
        recaller = retriever.recaller
        archived = recaller.live_world().archive()
        asker = hash_json(
            [
                recaller.reader.manifest.digest,
                retriever.profile.to_json(),
                None if archived is None else archived.key,
                plan.depth,
            ]
        )
        keys = [
            bytes.fromhex(hash_json([asker, q.text, str(q.as_of), q.extras.get(USER_KEY)]))
            for q in queries
        ]
        known = self._store.get(keys)
        self.reused += len(known)
        missing = [(key, q) for key, q in zip(keys, queries, strict=True) if key not in known]
        for start in range(0, len(missing), KEPT_PER_WRITE):
            chunk = missing[start : start + KEPT_PER_WRITE]
            run = run_retriever(retriever, [query for _, query in chunk], plan)
            found = zip(chunk, run.top_scores, run.rankings, strict=True)
            fresh = {key: json.dumps([best, *ids]).encode() for (key, _), best, ids in found}
            self._store.put(list(fresh), list(fresh.values()))
            known |= fresh
            done = len(queries) - len(missing) + start + len(chunk)
            progress.update("evaluate", done, len(queries))
        answers = [json.loads(known[key]) for key in keys]
        return Run(
            name=retriever.name,
            k=plan.depth,
            depth=plan.depth,
            query_ids=tuple(query.query_id for query in queries),
            rankings=tuple(tuple(ids) for _, *ids in answers),
            top_scores=tuple(best for best, *_ in answers),
            latency_ms=None,
            build_ms=None,
            index_bytes=None,
            unstable_prefixes=0,
        )


# Stage recall_evaluation: tonight's pack answers tonight's queries, with every arm.


RECALL_EVALUATION = Stage(
    "recall_evaluation", "2", (EVALUATION, EVALUATION_QUERIES, EVALUATION_RUNS)
)
RECALL_ANSWERS_KIND = f"{RECALL_EVALUATION.name}:{RECALL_EVALUATION.version}"
"""Kind of what is kept: answers of a night that was stopped."""
SERVED = "served"
PLAN = RunPlan(k=10, depth=50, timed=False)
"""The same for every arm, or their first ten would come from lists of different depth. Up to the
profile's own depth (50) a longer list does not change its head."""
SCORE_DIGITS = 5
"""Kept of a top score: equal nights leave equal files, whatever the machine was doing."""
HEADLINE_METRIC = "recall@10"

Runs = Mapping[str, Mapping[str, Run]]
"""Runs by group and arm."""


def evaluation_profiles(night: Night) -> dict[str, RetrievalProfile]:
    """Return the arms by name: as configured, each leg alone, and the challengers."""
    served = served_profile(night)
    legs = {
        "lexical": words_only(served),
        "dense": replace(served, lexical_weight=0.0, dense_weight=1.0, graph_weight=0.0),
    }
    challengers = {c.name: challenger_profile(served, c) for c in CHALLENGERS}
    arms = {SERVED: served, **legs, **challengers}
    return {name: profile for name, profile in arms.items() if name == SERVED or profile != served}


def words_only(profile: RetrievalProfile) -> RetrievalProfile:
    """Return a profile as it answers without a dense leg, by the words of the query alone."""
    return replace(profile, lexical_weight=1.0, dense_weight=0.0, graph_weight=0.0)


def served_profile(night: Night, adopted: Mapping[str, Any] | None = None) -> RetrievalProfile:
    """Return what answers a call that asks for nothing special, as a snapshot adopted it.

    Without the flags that only watch: they change no result, and a night has no business in the
    replay log.

    Args:
        night: Its settings and its store's own profiles count.
        adopted: What that snapshot's evaluation adopted; None for the settings alone.
    """
    served = store_profile(night, adopted)
    return replace(served, explain=False, candidate_trace=False, replay_log=False)


def challenger_profile(served: RetrievalProfile, challenger: Challenger) -> RetrievalProfile:
    """Return the configured profile with what a challenger changes."""
    return replace(served, **challenger_fields(served, challenger))


def challenger_fields(served: RetrievalProfile, challenger: Challenger) -> dict[str, Any]:
    """Return the fields of a profile that a challenger replaces."""
    fields: dict[str, Any] = {}
    if challenger.fusion is not None:
        fields["fusion"] = challenger.fusion
    if challenger.dense_share is not None:
        total = (served.lexical_weight + served.dense_weight) or 1.0
        fields["dense_weight"] = round(total * challenger.dense_share, 6)
        fields["lexical_weight"] = round(total * (1.0 - challenger.dense_share), 6)
    if challenger.graph_weight is not None:
        fields["graph_weight"] = challenger.graph_weight
    if challenger.session_weight is not None:
        fields["session_weight"] = challenger.session_weight
    return fields


def evaluate_pack(night: Night) -> StageResult:
    """Measure tonight's pack; without a query to ask, say so."""
    labels = labelled_path(night) if night.settings.evaluation.enabled else None
    generated = night.work(GENERATED)
    inputs = {
        "pack": night.result_of(SERVING_PACK).facts["digest"],
        "queries": hash_file(labels) if labels is not None and labels.is_file() else None,
        "generated": hash_file(generated) if generated.is_file() else None,
        "profile": served_profile(night).to_json(),
        "enabled": night.settings.evaluation.enabled,
        "exact_queries": night.settings.evaluation.exact_queries,
    }
    reused = 0

    def body() -> tuple[int, dict[str, Any]]:
        nonlocal reused
        if not night.settings.evaluation.enabled:
            return _write_evaluation(
                night, Questions(notes=("the evaluation is switched off",)), {}
            )
        questions = gather_questions(night)
        reader = SnapshotReader.open(pack_path(night))
        with closing(reader):
            recaller = Recaller(night.paths, reader, "candidate")
            runs, reused = _ask(night, recaller, questions)
            return _write_evaluation(night, questions, runs)

    result = night.run(RECALL_EVALUATION, inputs, body)
    return night.finish(result.with_notes(answers_reused=reused) if reused else result)


def read_runs(night: Night) -> dict[str, dict[str, Run]]:
    """Return the runs that the last evaluation kept."""
    raw = json.loads(night.work(EVALUATION_RUNS).read_text(encoding="utf-8"))
    return {
        group: {name: Run.from_json(run) for name, run in arms.items()}
        for group, arms in raw.items()
    }


def score_group(questions: Questions, runs: Runs, group: str) -> dict[str, Scores]:
    """Return the scores of every arm on one group of queries."""
    return {name: score_run(run, questions.groups[group]) for name, run in runs[group].items()}


def measure_abstention(questions: Questions, runs: Runs) -> Abstention | None:
    """Say how well the top score tells answerable from unanswerable queries, if there are both."""
    group = next(iter(questions.groups), None)
    if group is None or UNANSWERABLE not in runs:
        return None
    answerable = runs[group][SERVED]
    scores = score_run(answerable, questions.groups[group])
    return judge_abstention(answerable, runs[UNANSWERABLE][SERVED], scores)


def _ask(
    night: Night, recaller: Recaller, questions: Questions
) -> tuple[dict[str, dict[str, Run]], int]:
    """Return the runs, and how many answers a stopped night had found already."""
    asked = [*questions.groups.values(), questions.unanswerable]
    texts = [query.text for queries in asked for query in queries]
    fetch_query_vectors(night, recaller.reader.manifest, texts)
    profiles = evaluation_profiles(night)
    runs: dict[str, dict[str, Run]] = {}
    kept = KeptAnswers(night.content(RECALL_ANSWERS_KIND))
    for group, queries in questions.groups.items():
        runs[group] = {}
        for name, profile in profiles.items():
            retriever = ProfileRetriever(name, recaller, profile)
            runs[group][name] = kept.ask(retriever, queries, PLAN, night.progress)
    if questions.unanswerable:
        retriever = ProfileRetriever(SERVED, recaller, profiles[SERVED])
        found = kept.ask(retriever, questions.unanswerable, PLAN, SILENT)
        runs[UNANSWERABLE] = {SERVED: found}
    return runs, kept.reused


def _write_evaluation(night: Night, questions: Questions, runs: Runs) -> tuple[int, dict[str, Any]]:
    """Keep queries, runs and report; return the row count and facts of the stage."""
    write_questions(night, questions)
    kept = {
        group: {name: _rounded(run).to_json() for name, run in arms.items()}
        for group, arms in runs.items()
    }
    write_text(night.work(EVALUATION_RUNS), json.dumps(kept, ensure_ascii=False) + "\n")
    report = _report(questions, runs)
    write_text(night.work(EVALUATION), json.dumps(report, indent=1, ensure_ascii=False) + "\n")
    n = sum(len(queries) for queries in questions.groups.values())
    served = {
        f"{HEADLINE_METRIC} {group}": _served_mean(found["reports"])
        for group, found in report["groups"].items()
    }
    notes = {"note": "; ".join(questions.notes)} if questions.notes else {}
    return n, {"queries": questions.counts(), **served, **notes}


def _served_mean(reports: list[dict[str, Any]]) -> float:
    (found,) = (report for report in reports if report["name"] == SERVED)
    return round(float(found["overall"][HEADLINE_METRIC]["mean"]), 4)


def _rounded(run: Run) -> Run:
    """Cut scores to what does not depend on how many threads multiplied the matrices."""
    scores = (None if score is None else round(score, SCORE_DIGITS) for score in run.top_scores)
    return replace(run, top_scores=tuple(scores))


def _report(questions: Questions, runs: Runs) -> dict[str, Any]:
    groups: dict[str, Any] = {}
    for group in questions.groups:
        scores = score_group(questions, runs, group)
        others = [(arm, scores[SERVED]) for name, arm in scores.items() if name != SERVED]
        groups[group] = {
            "reports": [report.to_json() for report in summarize(list(scores.values()))],
            "comparisons": [found.to_json() for found in compare(others)],
        }
    abstention = measure_abstention(questions, runs)
    return {
        "queries": questions.counts(),
        "notes": list(questions.notes),
        "groups": groups,
        "abstention": abstention.to_json() if abstention else None,
    }


# Stage fusion_decision: which fusion and graph weight tonight's snapshot serves with, and why.


FUSION_DECISION = Stage("fusion_decision", "1", (DECISION,))
DECIDING_GROUPS = (LABELLED, GENERATED_GROUP)
"""Groups that can adopt; the exact one is built from the corpus's own words and can only veto."""


def decide_fusion(night: Night) -> StageResult:
    """Decide from the kept runs; without a query that can decide, the settings stay."""
    adopt = night.settings.evaluation.adopt
    evaluation = night.result_of(RECALL_EVALUATION)
    inputs = {"evaluation": evaluation.digest, "adopt": adopt}

    def body() -> tuple[int, dict[str, Any]]:
        decision = _decide(night) if adopt else None
        reason = decision.reason if decision else "the settings stay: evaluation.adopt is off"
        ranking = _ranking(night, decision) if decision and decision.adopted else None
        document = {"reason": reason, "decision": decision.to_json() if decision else None}
        write_text(night.work(DECISION), json.dumps(document, indent=1) + "\n")
        adopted = decision.adopted if decision else None
        tested = len(decision.tested) if decision else 0
        return tested, {"adopted": adopted, "reason": reason, "ranking": ranking}

    return night.finish(night.run(FUSION_DECISION, inputs, body))


def _decide(night: Night) -> Decision:
    questions, runs = read_questions(night), read_runs(night)
    scored = {group: score_group(questions, runs, group) for group in questions.groups}
    names = [challenger.name for challenger in CHALLENGERS]
    deciding = _joined([scored[group] for group in DECIDING_GROUPS if group in scored])
    guards: list[Guard] = []
    if EXACT in scored:
        found = scored[EXACT]
        guards.append(Guard(EXACT, found[SERVED], {n: found[n] for n in names if n in found}))
    served = deciding.get(SERVED)
    challengers = {name: deciding[name] for name in names if name in deciding}
    return decide(served, challengers, guards)


def _joined(groups: list[dict[str, Scores]]) -> dict[str, Scores]:
    """Put the groups' queries one after the other, arm by arm."""
    if not groups:
        return {}
    return {
        name: Scores(
            name=name,
            metrics=first.metrics,
            query_ids=tuple(i for group in groups for i in group[name].query_ids),
            strata=tuple(s for group in groups for s in group[name].strata),
            values=np.concatenate([group[name].values for group in groups]),
        )
        for name, first in groups[0].items()
    }


def _ranking(night: Night, decision: Decision) -> dict[str, Any]:
    """Return what the snapshot carries: the adopted fields and the evidence, numbers only."""
    (challenger,) = (c for c in CHALLENGERS if c.name == decision.adopted)
    return {
        "adopted": challenger_fields(served_profile(night), challenger),
        "challenger": challenger.name,
        "reason": decision.reason,
        "evidence": hash_json(decision.to_json()),
    }


# Stage abstention_calibration: below which score tonight's snapshot has no answer.


# What prompts that are nobody's memory come to on tonight's pack, and so what is usual for them.


# Stage abstention_calibration: below which score tonight's snapshot has no answer.


ABSTENTION_CALIBRATION = Stage("abstention_calibration", "3", (ABSTENTION,))

LET_THROUGH = 0.015
"""Share of everyday prompts that may reach the threshold: more injects noise, less loses answers.
"""

LENIENT = 0.02
"""The same for the sake of questions that the night made itself. Those repeat words, so for words
alone, which are weaker evidence, they have no say."""

MOST_LET_THROUGH = {WORDS_AND_VECTORS: 0.1, WORDS: 0.05}
"""The same for the sake of the owner's labels, which weigh more."""

BAR_SHARE = 0.5
"""Share of everyday prompts whose best memory reaches the bar of a single memory."""

OWN_METRIC = "recall@3 of its own questions"
"""What is kept of the questions that a night makes: as many memories as a hook injects."""

_OWN_K = 3

_WORDS_ARM = "lexical"
"""The evaluation's arm that answers as a recall without a dense leg does."""


def calibrate_abstention(night: Night) -> StageResult:
    """Choose tonight's thresholds: by everyday prompts, own questions and labels if there are."""
    decision = night.result_of(FUSION_DECISION)
    inputs = {
        "pack": night.result_of(SERVING_PACK).facts["digest"],
        "evaluation": night.result_of(RECALL_EVALUATION).digest,
        "decision": decision.digest,
        "profile": served_profile(night).to_json(),
        "prompts": hash_text(*read_everyday()),
    }

    def body() -> tuple[int, dict[str, Any]]:
        ranking = decision.facts["ranking"]
        profile = served_profile(night, ranking["adopted"] if ranking else None)
        with closing(SnapshotReader.open(pack_path(night))) as reader:
            # Some 600 texts: loaded now and for good, so that no clock decides who encodes them.
            with suppress(EncoderError):
                warm_up(night.paths, reader.manifest)
            recaller = Recaller(night.paths, reader, "candidate", may_warm=True)
            if not reader.count:
                return _write_calibration(night, {}, ["nothing abstains: the store is empty"])
            return _write_calibration(night, *_calibrate(night, recaller, profile, decision.facts))

    return night.finish(night.run(ABSTENTION_CALIBRATION, inputs, body))


def read_judged(night: Night) -> Mapping[str, Abstention]:
    """Return AUROC and risk-coverage of every signal that queries calibrated."""
    document = read_calibration(night)
    signals = document["sealed"]["signals"] if document["sealed"] else {}
    return {name: Abstention.from_json(raw) for name, raw in signals.items() if "auroc" in raw}


def read_calibration(night: Night) -> dict[str, Any]:
    """Return `sealed` (what the snapshot carries, or None) and `said` (one sentence per signal)."""
    document: dict[str, Any] = json.loads(night.work(ABSTENTION).read_text(encoding="utf-8"))
    return document


def _write_calibration(
    night: Night, signals: Mapping[str, Mapping[str, Any]], said: Sequence[str]
) -> tuple[int, dict[str, Any]]:
    rule = {"max_recall_loss": MAX_RECALL_LOSS, "let_through": LET_THROUGH}
    sealed = {"rule": rule, "signals": dict(signals)} if signals else None
    document = {"sealed": sealed, "said": list(said)}
    write_text(night.work(ABSTENTION), json.dumps(document, indent=1, sort_keys=True) + "\n")
    facts = {f"threshold {name}": found["threshold"] for name, found in signals.items()}
    return len(signals), {**facts, "reason": "; ".join(said)}


def _calibrate(
    night: Night, recaller: Recaller, profile: RetrievalProfile, decision: Mapping[str, Any]
) -> tuple[dict[str, dict[str, Any]], list[str]]:
    """Return what the snapshot carries by signal, and one sentence for each."""
    questions = read_questions(night)
    profiles = {WORDS_AND_VECTORS: profile, WORDS: words_only(profile)}
    asker = find_asker(recaller.reader)
    vectors = fetch_everyday_vectors(night, recaller)
    asked = ask_prompts(recaller, profiles, asker, vectors, PLAN.depth)
    # Of both signals: a query that another one answers must show it.
    recaller.calibration = Calibration.observing({s: p.measure for s, p in asked.items()})
    sealed: dict[str, dict[str, Any]] = {}
    said: list[str] = []
    for signal, prompted in asked.items():
        profile, scores = profiles[signal], prompted.scores
        chosen = by_labels = _by_labels(night, recaller, profile, questions, decision, prompted)
        if isinstance(by_labels, str) and signal == WORDS_AND_VECTORS:
            chosen = _by_own(night, recaller, profile, asker, prompted)
        threshold = reached_by(scores, LET_THROUGH)
        if isinstance(by_labels, Calibrated):
            told = [by_labels.describe(), by_labels.describe_unanswerable()]
        elif isinstance(chosen, Calibrated):
            told = [chosen.describe("questions that the night made"), by_labels]
        else:
            told = [f"{signal}: below {threshold:.3f} nothing is an answer"]
            told += (
                [by_labels]
                if chosen is by_labels
                else [by_labels, f"by its own questions: {chosen}"]
            )
        if isinstance(chosen, Calibrated):
            threshold = chosen.threshold
        let = sum(score >= threshold for score in scores)
        said.append("; ".join([*told, f"{let} of {len(scores)} everyday prompts reach it"]))
        sealed[signal] = {
            **(chosen.to_json() if isinstance(chosen, Calibrated) else {}),
            "threshold": threshold,
            "bar": reached_by(scores, BAR_SHARE),
            "measure": prompted.measure.to_json(),
            "prompts": len(scores),
            "prompts_let_through": let,
        }
    return sealed, said


def _by_labels(
    night: Night,
    recaller: Recaller,
    profile: RetrievalProfile,
    questions: Questions,
    decision: Mapping[str, Any],
    prompted: Prompted,
) -> Calibrated | str:
    labelled = questions.groups.get(LABELLED, ())
    if len(labelled) < MIN_ANSWERABLE:
        return f"there are {len(labelled)} labelled queries, and {MIN_ANSWERABLE} are needed"
    signal, ranking = prompted.signal, decision["ranking"]
    runs = read_runs(night)[LABELLED]
    run = runs[str(ranking["challenger"]) if ranking else SERVED]
    if signal == WORDS:
        run = runs.get(_WORDS_ARM, run)
    known = _scores(recaller, profile, labelled, signal)
    unknown = _scores(recaller, profile, questions.unanswerable, signal)
    if known is None or unknown is None:
        return "some labelled queries are answered by another signal"
    within = (reached_by(prompted.scores, MOST_LET_THROUGH[signal]), 1.0)
    return calibrate(
        signal, HEADLINE_METRIC, known, _recalls(run, labelled), unknown, within=within
    )


def _by_own(
    night: Night,
    recaller: Recaller,
    profile: RetrievalProfile,
    asker: str | None,
    prompted: Prompted,
) -> Calibrated | str:
    """Return the threshold that questions of the store's own memories lead to, or why none."""
    reader, scope = recaller.reader, Scope(user=asker)
    own = list(make_questions(reader, scope_mask(reader, asker)))
    fetch_query_vectors(night, reader.manifest, [text for text, _ in own])
    scores, recalls = list[float](), list[float]()
    for text, memory_id in own:
        found = recaller.recall(text, _OWN_K, profile=profile, scope=scope)
        judged = found.answerability
        scores.append(floor_score(judged.score) if judged is not None else 0.0)
        recalls.append(float(memory_id in {str(m.id) for m in found.memories}))
    strict = reached_by(prompted.scores, LET_THROUGH)
    within = (reached_by(prompted.scores, LENIENT), strict)
    return calibrate(prompted.signal, OWN_METRIC, scores, recalls, prompted.scores, within=within)


def _recalls(run: Run, queries: Sequence[Query]) -> list[float]:
    scores = score_run(run, queries)
    by_query = dict(
        zip(scores.query_ids, scores.column(HEADLINE_METRIC).tolist(), strict=True)
    )  # fmt: skip
    return [by_query[query.query_id] for query in queries]


def _scores(
    recaller: Recaller, profile: RetrievalProfile, queries: Sequence[Query], signal: str
) -> list[float] | None:
    """Return every query's score, asked as the evaluation asks; None if one has another signal."""
    scores: list[float] = []
    for query in queries:
        scope = Scope(as_of=query.as_of, user=query.extras.get(USER_KEY))
        found = recaller.recall(query.text, PLAN.k, profile=profile, scope=scope).answerability
        if found is not None and found.signal != signal:
            return None
        # Nothing was searched: a blank query, or a scope that shows nothing.
        scores.append(0.0 if found is None else floor_score(found.score))
    return scores


@dg.asset(
    deps=[ingest.memories, graph.edges],
    kinds={"json"},
    code_version=GENERATED_QUERIES.version,
)
def generated_queries(night: dg.ResourceParam[Night]) -> dg.MaterializeResult[Any]:
    """Queries that a language model wrote and another one graded; empty unless configured."""
    return report_stage(night, write_queries(night))


@dg.asset(
    deps=[pack.serving_pack, generated_queries],
    kinds={"json"},
    code_version=RECALL_EVALUATION.version,
)
def recall_evaluation(night: dg.ResourceParam[Night]) -> dg.MaterializeResult[Any]:
    """The pack's recall on phrases of its own and on labelled queries: served, legs, challengers.

    The exact group is built from the corpus's own words and favours lexical search.
    """
    return report_stage(night, evaluate_pack(night))


@dg.asset(
    deps=[recall_evaluation],
    kinds={"json"},
    code_version=FUSION_DECISION.version,
)
def fusion_decision(night: dg.ResourceParam[Night]) -> dg.MaterializeResult[Any]:
    """Fusion and graph weight of tonight's snapshot: the settings', unless another one is proven.

    Proven means that its interval excludes zero on queries it was not chosen on.
    """
    return report_stage(night, decide_fusion(night))


@dg.asset(
    deps=[pack.serving_pack, recall_evaluation, fusion_decision],
    kinds={"json"},
    code_version=ABSTENTION_CALIBRATION.version,
)
def abstention_calibration(night: dg.ResourceParam[Night]) -> dg.MaterializeResult[Any]:
    """Below which score the snapshot has no answer, and the bar of a single memory.

    Chosen by everyday prompts, by questions that the night makes of the store's own memories and,
    where there are some, by the owner's labels. Its plots are with the night that chose it.
    """
    result = calibrate_abstention(night)
    judged = {} if result.reused else read_judged(night)
    plots = {
        f"plot_{name}": dg.MetadataValue.md(as_markdown_image(plot_risk_coverage(found), name))
        for name, found in judged.items()
    }
    return report_stage(night, result, more=plots)
