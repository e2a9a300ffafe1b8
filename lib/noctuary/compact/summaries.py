"""From clusters to judged summaries: escalation, batches, re-use between nights, and the tables."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import compress, islice
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from noctuary.compact.clusters import (
    BATCH_CLUSTERS,
    ArrowSchema,
    Cluster,
    ClusterSources,
    ClusterText,
    Row,
    iter_cluster_texts,
    iter_clusters,
    iter_rows,
    quantiles,
    table_schema,
    with_tuples,
    write_rows,
)
from noctuary.compact.gate import (
    FACTS_VERSION,
    TAU_PRESERVE,
    FactReport,
    GateReport,
    check_facts,
    judge,
)
from noctuary.compact.summarizers import (
    EXTRACTIVE,
    TRIED_AGAIN,
    Draft,
    Outcome,
    Refusal,
    Request,
    Summarizer,
)
from noctuary.core.files import hash_json, hash_text, replacement
from noctuary.core.settings import CompactionSettings
from noctuary.core.types import SILENT, Progress, summary_id
from noctuary.embed.documents import Embedded, put_vectors, text_key
from noctuary.embed.onnx import OnnxEncoder
from noctuary.sources.corpus import count_rows
from noctuary.text.marks import estimate_tokens
from noctuary.text.secrets import find_text_sensitivity
from noctuary.work.content import KEY, KEY_BYTES, VALUE, ContentStore, fill
from noctuary.work.shards import BatchFunction, RecordBatch, Runner, open_table

if TYPE_CHECKING:
    import polars as pl

Status = Literal["accepted", "declined", "trivial"]


@dataclass(frozen=True, slots=True)
class Summary:
    """One cluster's outcome; only an accepted one may reach a snapshot."""

    summary_id: str  # 16 hex characters of cluster, method and text
    cluster_id: str
    session_id: str
    text: str  # of a declined one the last rejected candidate, or ""; of a trivial one the turn
    status: Status
    method: str  # how the text was made: a summarizer and its cut, "trivial" or "none"
    source_ids: tuple[str, ...]  # all turns it covers, chronological
    source_positions: tuple[int, ...]
    first_us: int  # of the earliest source, not of the night that made the summary
    last_us: int
    source_tokens: int  # estimated
    summary_tokens: int  # of `text`, by the same estimator
    report: GateReport | None  # None where there was nothing to judge
    reason: str  # why it is not accepted; "" where it is
    user: str | None = None
    wing: str | None = None
    parent_ids: tuple[str, ...] = ()  # earlier summaries its summarizer was shown, oldest first
    facts: FactReport | None = None  # None where nothing was checked
    fallback: str = ""  # an Outcome: why the configured summarizer's text is not used; "" if it is


@dataclass(frozen=True, slots=True)
class Attempt:
    """One candidate for a cluster's summary."""

    cluster_id: str
    place: int  # 0-based rank among the candidates of its cluster, in the order of trying
    method: str
    text: str  # "" where there is none or where it must not be kept
    source_tokens: int
    summary_tokens: int
    report: GateReport | None  # None where it came to no verdict
    facts: FactReport | None  # likewise
    outcome: Outcome | None  # why it was rejected; None of the one that was taken
    reason: str  # the same in words, with the numbers
    parent_ids: tuple[str, ...] = ()


# Escalation: primary cut, aggressive cut, extractive, decline (research/peers.md 1.7).
#
# The aggressive cut is for drafts that are not smaller than their sources. A draft that fails
# otherwise is followed by the extractive one: a denser draft would be no more faithful.

AGGRESSIVE_SUFFIX = "-aggressive"  # ends the method of a draft of the second, denser try

Vectors = NDArray[np.floating[Any]]
Encode = Callable[[list[str]], Vectors]
"""Vectors of the given texts, shape (m, d), encoded as documents."""


class SummarySettings(NamedTuple):
    """What decides the text and the verdict of a summary."""

    density: float = 0.0  # share kept by the primary cut, in [0, 1]; 0 for the summarizer's own
    aggressive_density: float = 0.0  # where the primary cut is not smaller, likewise
    threshold: float = TAU_PRESERVE  # least alignment of an accepted summary, in [-1, 1]

    @staticmethod
    def of(settings: CompactionSettings) -> SummarySettings:
        """Return what the settings of a store say."""
        densities = settings.density, settings.aggressive_density
        return SummarySettings(*densities, settings.preserve_threshold)


DEFAULT_SETTINGS = SummarySettings()


@dataclass(slots=True)
class Trial:
    """What became of one request."""

    request: Request
    source_tokens: int  # estimated tokens of its turns
    attempts: list[Attempt] = field(default_factory=list[Attempt])  # rejected, in order of trying
    judged: Attempt | None = None  # the last draft that came to a verdict, taken or not
    fallback: str = ""  # why the configured summarizer's draft is not used; "" where it is

    @property
    def taken(self) -> bool:
        """Say whether `judged` is the summary."""
        return self.judged is not None and self.judged.outcome is None


def source_tokens(contents: Sequence[str]) -> int:
    """Return the estimated tokens of the whole cluster, joined the way a summary is."""
    return estimate_tokens(" ".join(contents))


def escalate(
    requests: Sequence[Request],
    encode: Encode,
    *,
    summarizer: Summarizer = EXTRACTIVE,
    settings: SummarySettings = DEFAULT_SETTINGS,
) -> list[Trial]:
    """Return what became of each of some independent requests, in their order."""
    trials = [Trial(request, source_tokens(request.texts)) for request in requests]
    if summarizer.name != EXTRACTIVE.name:
        _try(trials, summarizer, encode, settings)
        # What was configured is a share of what the configured summarizer cuts.
        settings = settings._replace(density=0.0, aggressive_density=0.0)
        for trial in trials:
            trial.fallback = "" if trial.taken else str(trial.attempts[-1].outcome)
    _try([trial for trial in trials if not trial.taken], EXTRACTIVE, encode, settings)
    return trials


def _try(
    trials: Sequence[Trial], summarizer: Summarizer, encode: Encode, settings: SummarySettings
) -> None:
    """Let one summarizer try: its primary cut, and its aggressive one if that was not smaller."""
    waiting, own = list(trials), summarizer.densities
    for method, density in (
        (summarizer.name, settings.density or own[0]),
        (summarizer.name + AGGRESSIVE_SUFFIX, settings.aggressive_density or own[1]),
    ):
        smaller: list[tuple[Trial, Attempt, float | None]] = []
        too_large: list[Trial] = []
        for trial in waiting:
            draft = summarizer.write(trial.request, density)
            shown = trial.request.parent_ids if summarizer.uses_context else ()
            attempt = _look_at(draft, trial, method, shown)
            if isinstance(draft, Draft) and attempt.outcome is None:
                smaller.append((trial, attempt, draft.raw_confidence))
                continue
            trial.attempts.append(attempt)
            if attempt.outcome is Outcome.NOT_SMALLER:
                too_large.append(trial)
        vectors = _vectors([(trial.request, attempt.text) for trial, attempt, _ in smaller], encode)
        for (trial, attempt, raw), vector in zip(smaller, vectors, strict=True):
            turns = trial.request
            report = judge(vector, turns.vectors, raw=raw, threshold=settings.threshold)
            facts = check_facts(attempt.text, turns.texts)
            outcome = Outcome.GATE if not report.passed else None if facts.passed else Outcome.FACTS
            reason = "; ".join((*report.reasons, *facts.reasons))
            trial.judged = replace(
                attempt, report=report, facts=facts, outcome=outcome, reason=reason
            )
            if outcome is not None:
                trial.attempts.append(trial.judged)
        waiting = too_large


def _look_at(draft: Draft | Refusal, trial: Trial, method: str, shown: tuple[str, ...]) -> Attempt:
    """Return a candidate before it is judged, rejected where it need not be."""
    text, outcome, reason = "", None, ""
    if isinstance(draft, Refusal):
        outcome, reason = draft
    elif secret := find_text_sensitivity(draft.text):
        # Turns are joined: "the password?" and the answer to it may meet.
        outcome, reason = Outcome.SECRET, f"its text reads like {secret}"
    else:
        text = draft.text
    tokens = estimate_tokens(text)
    if outcome is None and tokens >= trial.source_tokens:
        outcome = Outcome.NOT_SMALLER
        reason = f"its {tokens} tokens are not fewer than the {trial.source_tokens} of its sources"
    return Attempt(
        trial.request.cluster_id, len(trial.attempts), method, text, trial.source_tokens, tokens,
        None, None, outcome, reason, shown,
    )  # fmt: skip


def _vectors(drafted: Sequence[tuple[Request, str]], encode: Encode) -> list[Vectors]:
    """Return one vector per draft; a draft that is one turn verbatim already has its own."""
    own = [
        next((v for v, turn in zip(r.vectors, r.texts, strict=False) if turn == text), None)
        for r, text in drafted
    ]
    mixed = [text for (_, text), vector in zip(drafted, own, strict=True) if vector is None]
    encoded = list(encode(mixed)) if mixed else []
    if len(encoded) != len(mixed):
        raise ValueError(f"the encoder returned {len(encoded)} vectors for {len(mixed)} summaries")
    rows = iter(encoded)
    return [next(rows) if vector is None else vector for vector in own]


# What an abstractive summarizer is shown of the session before a cluster.

CONTEXT_TOKENS = 96  # estimated tokens of earlier summaries per request; the reference's default
_SESSIONS = 1024  # sessions remembered; batches come session by session, so that one would do


class SessionContext:
    """The newest accepted summaries of each session that fit into CONTEXT_TOKENS.

    One object serves a whole night. Clusters of a session must be remembered oldest first, or a
    summary would be shown what comes after it.
    """

    def __init__(self) -> None:
        self._sessions: dict[tuple[str | None, ...], list[Summary]] = {}

    def before(self, cluster: Cluster) -> tuple[Summary, ...]:
        """Return what a session's next cluster is shown, oldest first; often nothing."""
        return tuple(self._sessions.get((cluster.user, cluster.session_id, cluster.wing), ()))

    def remember(self, summary: Summary) -> None:
        """Take in a session's next summary; one that is too long hides all before it."""
        if summary.status != "accepted":
            return
        session = summary.user, summary.session_id, summary.wing
        kept = [*self._sessions.pop(session, []), summary]
        while kept and sum(earlier.summary_tokens for earlier in kept) > CONTEXT_TOKENS:
            kept.pop(0)
        self._sessions[session] = kept
        if len(self._sessions) > _SESSIONS:
            del self._sessions[next(iter(self._sessions))]


# From clusters to judged summaries, batch by batch, with those of earlier nights used again.

# Raised when the same turns would be summarised to other text or other numbers.
RECIPE_VERSION = "2"


class Settled(NamedTuple):
    """What became of a cluster; as a value of the content store without positions: rows move."""

    summary: Summary
    attempts: tuple[Attempt, ...] = ()  # rejected
    # float32 (d,) of the texts that were embedded for it by another process, by text.
    vectors: Mapping[str, NDArray[np.float32]] = MappingProxyType({})


Lookup = Callable[[Sequence[bytes]], Mapping[bytes, Settled]]
"""What is known of some clusters, by `result_key`."""


class BatchResult(NamedTuple):
    """What a batch came to, in its order."""

    summaries: list[Summary]  # one per cluster
    attempts: list[Attempt]  # every rejected candidate, those of earlier nights included
    made: int  # clusters that were summarised tonight; the others were used again
    keys: Sequence[bytes] = ()  # of every cluster, see `result_key`
    # What was made and is worth keeping, by key: a summarizer that gave no answer may give one
    # another night (`TRIED_AGAIN`).
    fresh: Mapping[bytes, Settled] = MappingProxyType({})


def recipe_digest(
    fingerprint_digest: str,
    settings: SummarySettings = DEFAULT_SETTINGS,
    summarizer: Summarizer = EXTRACTIVE,
) -> str:
    """Return what decides a summary beside its turns: encoder, settings, summarizer, versions."""
    versions, recipe = [RECIPE_VERSION, FACTS_VERSION], [summarizer.name, dict(summarizer.recipe)]
    fallback = dict(EXTRACTIVE.recipe)
    return hash_json([versions, fingerprint_digest, settings._asdict(), recipe, fallback])


def summarize_batch(
    batch: Sequence[ClusterText],
    encode: Encode,
    *,
    summarizer: Summarizer = EXTRACTIVE,
    known: Lookup | None = None,
    settings: SummarySettings = DEFAULT_SETTINGS,
    context: SessionContext | None = None,
) -> BatchResult:
    """Summarise every cluster of a batch and judge every candidate; known ones are used again.

    How clusters are cut into batches changes nothing, if those of one session come oldest first and
    a `context` is carried over, needed only where `summarizer.uses_context`. ValueError if texts
    and vectors differ in number.
    """
    context = context or SessionContext()
    keys, found, fresh = list[bytes](), list[Settled](), dict[bytes, Settled]()
    made = 0
    # One after the other where a summary is shown to the next cluster, else together.
    for part in [[item] for item in batch] if summarizer.uses_context else [batch]:
        shown = [context.before(c.cluster) if summarizer.uses_context else () for c in part]
        part_keys = [result_key(c.cluster, s) for c, s in zip(part, shown, strict=True)]
        held = known(part_keys) if known is not None else {}
        requests = [
            Request(c.cluster_id, texts, vectors, c.user, *_told(before))
            for (c, texts, vectors), before, key in zip(part, shown, part_keys, strict=True)
            if key not in held and not c.trivial
        ]
        trials = iter(escalate(requests, encode, summarizer=summarizer, settings=settings))
        for (cluster, texts, _), key in zip(part, part_keys, strict=True):
            if (again := held.get(key)) is not None:
                settled = again._replace(summary=replace(again.summary, **_sources(cluster)))
            elif cluster.trivial:
                settled = Settled(_summary_of(cluster, texts[0]))
            else:
                trial = next(trials)
                settled = Settled(_summary_of(cluster, trial), tuple(trial.attempts))
            if again is None:
                made += 1
                if settled.summary.fallback not in TRIED_AGAIN:
                    fresh[key] = settled
            context.remember(settled.summary)
            found.append(settled)
        keys += part_keys
    attempts = [attempt for settled in found for attempt in settled.attempts]
    return BatchResult([settled.summary for settled in found], attempts, made, keys, fresh)


def result_key(cluster: Cluster, shown: Sequence[Summary] = ()) -> bytes:
    """Return the key of a cluster's summary; `shown` are what its summarizer is shown."""
    parents = () if cluster.trivial else shown
    return bytes.fromhex(hash_text(cluster.cluster_id, *(p.summary_id for p in parents)))


def _told(shown: Sequence[Summary]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    return tuple(s.text for s in shown), tuple(s.summary_id for s in shown)


def _sources(cluster: Cluster) -> dict[str, Any]:
    """Return what a summary says of its sources, as they stand today."""
    same = {name: getattr(cluster, name) for name in ("first_us", "last_us", "user", "wing")}
    return {"source_positions": cluster.member_positions, "source_ids": cluster.member_ids, **same}


def _summary_of(cluster: Cluster, of: Trial | str) -> Summary:
    """Return what was taken, or the last draft that was judged; of a trivial cluster its text."""
    told: dict[str, Any] = {"status": "accepted", "report": None, "reason": ""}
    text, method, tokens = "", "none", 0
    if isinstance(of, str):
        text, method, tokens = of, "trivial", source_tokens([of])
        told |= {"status": "trivial", "reason": "one turn: it stands for itself"}
        told["source_tokens"] = tokens
    else:
        rejected, last = None if of.taken else of.attempts[-1], of.judged
        told |= {"source_tokens": of.source_tokens, "fallback": of.fallback}
        if rejected is not None:
            told |= {"status": "declined", "reason": rejected.reason}
        if last is not None and (rejected is None or rejected.outcome is not Outcome.SECRET):
            text, method, tokens = last.text, last.method, last.summary_tokens
            told |= {name: getattr(last, name) for name in ("report", "facts", "parent_ids")}
    key, session = cluster.cluster_id, cluster.session_id
    ids = {"summary_id": summary_id(key, method, text), "cluster_id": key, "session_id": session}
    made = {"text": text, "method": method, "summary_tokens": tokens}
    return Summary(**ids, **made, **_sources(cluster), **told)


# Summaries and attempts as rows: of the tables, and of what is kept between nights.

_VERDICTS = ("report", "facts")
_GATE_PREFIX = "gate_"

S = TypeVar("S", Summary, Attempt)


def to_row(found: Summary | Attempt) -> Row:
    """Return a summary or attempt as a row: the gate's report in columns, the facts as JSON."""
    row = {name: getattr(found, name) for name in found.__slots__ if name not in _VERDICTS}
    for name in GateReport.__slots__:
        row[_GATE_PREFIX + name] = None if found.report is None else getattr(found.report, name)
    return {**row, "facts": None if found.facts is None else found.facts.to_json()}


def from_row(kind: type[S], row: Row) -> S:
    """Return what `to_row` made a row of; ValueError if its outcome or its fact report is none."""
    values = with_tuples(row)
    gate = {name: values.pop(_GATE_PREFIX + name) for name in GateReport.__slots__}
    facts = values.pop("facts")
    if "outcome" in values:
        values["outcome"] = Outcome(values["outcome"])
    return kind(
        report=None if gate["passed"] is None else GateReport(**gate),
        facts=None if facts is None else FactReport.from_json(facts),
        **values,
    )


def judged_schema(kind: type[Summary | Attempt]) -> ArrowSchema:
    """Return the columns of summaries or of attempts."""
    import pyarrow as pa

    gate = [f.with_name(_GATE_PREFIX + f.name) for f in table_schema(GateReport)]
    own = table_schema(kind, without=_VERDICTS)
    return pa.schema([*own, *gate, pa.field("facts", pa.string())])


@contextmanager
def write_tables(summaries: Path, attempts: Path) -> Generator[Callable[[BatchResult], None]]:
    """Yield a function that takes batches; if the block ends well, both tables are replaced."""
    with (
        replacement(attempts) as rejected,
        replacement(summaries) as made,
        write_rows(rejected, judged_schema(Attempt)) as reject,
        write_rows(made, judged_schema(Summary)) as take,
    ):

        def add(batch: BatchResult) -> None:
            for summary in batch.summaries:
                take(to_row(summary))
            for attempt in batch.attempts:
                reject(to_row(attempt))

        yield add


def iter_summaries(path: Path) -> Iterator[Summary]:
    """Yield the summaries of a table in its order, a row group at a time."""
    return (from_row(Summary, row) for row in iter_rows(path, judged_schema(Summary)))


def summary_facts(summaries: Path, attempts: Path) -> dict[str, Any]:
    """Return what the two tables say as a whole; tokens and facts are of accepted summaries."""
    import polars as pl

    report = pl.col("facts").str
    made = (
        pl.scan_parquet(summaries)
        .select(
            *("status", "method", "fallback", "gate_align", "gate_cover"),
            *("source_tokens", "summary_tokens"),
            turns=pl.col("source_positions").list.len(),
            kept=report.json_path_match("$.kept").cast(pl.Int64),
            total=report.json_path_match("$.total").cast(pl.Int64),
        )
        .collect()
    )
    accepted = made.filter(pl.col("status") == "accepted")
    summed = ("source_tokens", "summary_tokens", "kept", "total", "turns")
    before, after, kept, total, turns = (int(accepted[name].sum()) for name in summed)
    outcomes = pl.scan_parquet(attempts).select("outcome").collect()
    return {
        "by_status": _counts(made["status"]),
        "by_method": _counts(accepted["method"]),
        "by_fallback": _counts(made["fallback"].filter(made["fallback"] != "")),
        "attempts_by_outcome": _counts(outcomes["outcome"]),
        "summarised_turns": turns,
        "source_tokens": before,
        "summary_tokens": after,
        "tokens_saved_share": round(1.0 - after / before, 4) if before else None,
        "q_align": quantiles(made["gate_align"].drop_nulls().to_list()),
        "q_cover": quantiles(made["gate_cover"].drop_nulls().to_list()),
        "facts_kept": kept,
        "facts_total": total,
        "facts_kept_share": round(kept / total, 4) if total else None,
    }


def _counts(values: pl.Series) -> dict[str, int]:
    return dict(values.value_counts().sort(values.name).iter_rows())


# What became of a cluster as a value of the content store, and a task that makes such values.

SHARD_CLUSTERS = 256  # of a shard, 9 MB: more lose more work to a kill, fewer make more files

_POSITIONS = "source_positions"
_TASK = "summaries"


def read_settled(value: bytes) -> Settled:
    """Return what `write_settled` wrote."""
    told = json.loads(value)
    vectors = told["vectors"].items()
    return Settled(
        from_row(Summary, {**told["summary"], _POSITIONS: []}),
        tuple(from_row(Attempt, row) for row in told["attempts"]),
        {text: np.frombuffer(base64.b64decode(data), dtype="<f4") for text, data in vectors},
    )


def write_settled(settled: Settled) -> bytes:
    """Return what became of a cluster as a value of the content store."""
    row = to_row(settled.summary)
    del row[_POSITIONS]
    vectors = {
        text: base64.b64encode(vector.astype("<f4").tobytes()).decode("ascii")
        for text, vector in sorted(settled.vectors.items())
    }
    attempts = list(map(to_row, settled.attempts))
    return json.dumps({"summary": row, "attempts": attempts, "vectors": vectors}).encode("ascii")


@dataclass(frozen=True, slots=True)
class SummarizeClusters:
    """Gives the judged summary of every cluster; see `BatchTask`."""

    summarizer: Summarizer  # one that needs nothing but the cluster
    settings: SummarySettings
    export: Path  # the ONNX export that made the members' vectors; opened where a text needs one

    name = _TASK
    row_ms = 13.0  # a cluster of 16 turns of 200 characters, its embedding by one layer included

    def open(self, threads: int) -> BatchFunction:
        """Return the function from `cluster_rows` to `key` and `value`; see `BatchTask`."""

        @cache
        def encoder() -> OnnxEncoder:
            return OnnxEncoder.open(self.export, threads)

        def summarize(rows: RecordBatch) -> RecordBatch:
            import pyarrow as pa

            embedded: dict[str, NDArray[np.float32]] = {}

            def encode(texts: list[str]) -> NDArray[np.float32]:
                vectors = encoder().encode_documents(texts)
                embedded.update(zip(texts, vectors, strict=True))
                return vectors

            result = summarize_batch(
                [_read_cluster(row) for row in rows.to_pylist()],
                encode,
                summarizer=self.summarizer,
                settings=self.settings,
            )
            values: list[bytes] = []
            for key in result.keys:
                made = result.fresh[key]
                judged = {made.summary.text, *(attempt.text for attempt in made.attempts)}
                vectors = {text: embedded[text] for text in judged & embedded.keys()}
                values.append(write_settled(made._replace(vectors=vectors)))
            return pa.record_batch([rows.column(KEY), pa.array(values, pa.binary())], [KEY, VALUE])

        return summarize


def cluster_rows(batch: Sequence[ClusterText]) -> RecordBatch:
    """Return the rows that the task reads: key, cluster, texts, vectors (float32, row-major)."""
    import pyarrow as pa

    vectors = [np.asarray(item.vectors, dtype="<f4").tobytes() for item in batch]
    columns = {
        KEY: pa.array([result_key(item.cluster) for item in batch], pa.binary(KEY_BYTES)),
        "cluster": pa.array([_cluster_json(item.cluster) for item in batch], pa.string()),
        "texts": pa.array([list(item.contents) for item in batch], pa.list_(pa.string())),
        "vectors": pa.array(vectors, pa.binary()),
    }
    return pa.record_batch(list(columns.values()), names=list(columns))


def _cluster_json(cluster: Cluster) -> str:
    row = {name: getattr(cluster, name) for name in Cluster.__slots__}
    # Left out, so that equal clusters are equal rows wherever they stand in the store tonight.
    return json.dumps({**row, "member_positions": []})


def _read_cluster(row: Row) -> ClusterText:
    vectors = np.frombuffer(row["vectors"], dtype="<f4").reshape(len(row["texts"]), -1)
    return ClusterText(Cluster(**with_tuples(json.loads(row["cluster"]))), row["texts"], vectors)


# Summaries of all clusters of a table: what is known is used again, what is new is made.

Embed = Callable[[list[str]], Embedded]
"""Gives the vectors of texts, encoded as documents, and how many of them were new."""


def summary_kind(recipe: str) -> str:
    """Return the kind of what became of clusters by a recipe (`recipe_digest`)."""
    return f"summaries:{recipe}"


def summarize_clusters(
    sources: ClusterSources,
    results: ContentStore,
    vectors: ContentStore,
    embed: Embed,
    take: Callable[[BatchResult], None],
    *,
    summarizer: Summarizer,
    settings: SummarySettings,
    export: Path | None,
    runner: Runner,
    shards: Path,
    progress: Progress = SILENT,
) -> tuple[int, int]:
    """Summarise every cluster of a table; of clusters that are known no text is read.

    What the runner can make (the export is the ONNX one that made the members' vectors, None if
    something else did), it makes before the first batch, with files below `shards`, removed at the
    end. Batches are made here otherwise, and where a result is gone again; `take` gets every batch,
    in the order of the table. Afterwards `results`, of `summary_kind`, holds nothing else, and
    `vectors`, where `embed` keeps its own, those of all texts. Returns how many clusters were new,
    and how many texts were embedded for them. ShardError if the task failed: what was made is kept.
    """
    count, done, made, embedded = count_rows(sources.clusters), 0, 0, 0
    # A summarizer that is shown earlier summaries waits for a service: no worker runs it, and what
    # it is shown may have changed, so that only a batch can tell what is known.
    alone = not summarizer.uses_context
    if export is not None and alone:
        settled = _settled_ids(results, sources)
        before = {fragment.key for fragment in results.fragments}
        new_rows = (
            cluster_rows(new)
            for batch in iter_cluster_texts(sources, skip=settled)
            if (new := [item for item in batch if item.cluster.cluster_id not in settled])
        )
        filled = fill(
            results, new_rows, SummarizeClusters(summarizer, settings, export), runner, shards,
            progress, total=max(count - len(settled), 0), shard_rows=SHARD_CLUSTERS,
        )  # fmt: skip
        made = filled.computed
        new = (fragment for fragment in results.fragments if fragment.key not in before)
        embedded = sum(_keep_vectors(fragment.path, vectors) for fragment in new)

    def known(wanted: Sequence[bytes]) -> Mapping[bytes, Settled]:
        return {key: read_settled(value) for key, value in results.get(wanted).items()}

    def encode(texts: list[str]) -> NDArray[np.float32]:
        nonlocal embedded
        found = embed(texts)
        embedded += found.computed
        return found.vectors

    context, keys = SessionContext(), list[bytes]()
    for batch in iter_cluster_texts(
        sources, skip=_settled_ids(results, sources) if alone else set[str]()
    ):
        result = summarize_batch(
            batch, encode, summarizer=summarizer, known=known, settings=settings, context=context
        )
        results.put(list(result.fresh), list(map(write_settled, result.fresh.values())))
        made += result.made
        keys += result.keys
        done += len(batch)
        if export is None or not alone:
            progress.update(_TASK, done, count)
        take(result)
    results.prune(keys)
    return made, embedded


def _settled_ids(results: ContentStore, sources: ClusterSources) -> set[str]:
    """Return the clusters whose summaries are used again."""
    settled: set[str] = set()
    clusters = iter_clusters(sources.clusters)
    while batch := list(islice(clusters, BATCH_CLUSTERS)):
        held = (results.find(map(result_key, batch)) >= 0).tolist()
        settled.update(compress((cluster.cluster_id for cluster in batch), held))
    return settled


def _keep_vectors(made: Path, vectors: ContentStore) -> int:
    """Keep the vectors of the texts that the task embedded; return how many were new."""
    values = map(read_settled, open_table(made)[VALUE].to_pylist())
    found = {text_key(text): v for item in values for text, v in item.vectors.items()}
    held = (vectors.find(list(found)) >= 0).tolist()
    new = {key: found[key] for key, is_held in zip(found, held, strict=True) if not is_held}
    put_vectors(vectors, new)
    return len(new)
