"""From clusters to judged summaries: escalation, batches, re-use between nights, and the tables."""

from __future__ import annotations

import base64
import json
from collections import Counter, OrderedDict
from collections.abc import Callable, Container, Generator, Iterable, Iterator, Mapping, Sequence
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
    ExtractiveSummarizer,
    Outcome,
    Refusal,
    Request,
    SentenceSummarizer,
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
from noctuary.work.shards import BatchFunction, Fragment, RecordBatch, Runner, open_table

if TYPE_CHECKING:
    import polars as pl

# What becomes of a cluster: a summary that may serve, or why there is none.


Status = Literal["accepted", "declined", "trivial"]

METHOD_TRIVIAL = "trivial"
METHOD_NONE = "none"


@dataclass(frozen=True, slots=True)
class Summary:
    """One cluster's outcome; only an accepted one may reach a snapshot."""

    summary_id: str  # 16 hex characters of cluster, method and text
    cluster_id: str
    session_id: str
    text: str  # of a declined one the last rejected candidate, or ""; of a trivial one the turn
    status: Status
    method: str  # how the text was made
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
    """One rejected candidate for a cluster's summary."""

    cluster_id: str
    place: int  # 0-based rank among the candidates of its cluster, in the order of trying
    method: str
    text: str  # "" where there is none or where it must not be kept
    source_tokens: int
    summary_tokens: int
    report: GateReport | None  # None where it came to no verdict
    facts: FactReport | None  # likewise
    outcome: Outcome
    reason: str  # the same in words, with the numbers
    parent_ids: tuple[str, ...] = ()


# Escalation: primary cut, aggressive cut, extractive, decline.
#
# A draft is taken if it is strictly smaller than its sources by one and the same estimate, reads
# like no secret, passes the gate and states nothing that its sources do not. The aggressive cut is
# for drafts that are not smaller. A draft that fails otherwise is followed by the extractive one,
# because a denser draft of the same model would be no more faithful. Source: research/peers.md 1.7.


AGGRESSIVE_SUFFIX = "-aggressive"
"""Ends the method of a draft of the second, denser try."""

Encode = Callable[[list[str]], NDArray[np.floating[Any]]]
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


class Judged(NamedTuple):
    """A draft that was smaller, and what the checks say of it."""

    draft: Draft
    method: str
    tokens: int
    report: GateReport
    facts: FactReport


@dataclass(slots=True)
class Trial:
    """What became of one request."""

    request: Request
    source_tokens: int  # estimated tokens of its turns
    parent_ids: tuple[str, ...] = ()  # of `request.context`
    attempts: list[Attempt] = field(default_factory=list[Attempt])  # rejected, in order of trying
    last: Judged | None = None  # the last draft that was judged, taken or not
    taken: bool = False  # `last` is the summary
    fallback: str = ""  # why the configured summarizer's draft is not used; "" where it is

    def reject(
        self, outcome: Outcome, reason: str, method: str, shown: tuple[str, ...], text: str = ""
    ) -> None:
        """Write down why a draft is not taken; a verdict on `last` goes with it."""
        judged = self.last if outcome in (Outcome.GATE, Outcome.FACTS) else None
        self.attempts.append(
            Attempt(
                cluster_id=self.request.cluster_id,
                place=len(self.attempts),
                method=method,
                text=text,
                source_tokens=self.source_tokens,
                summary_tokens=estimate_tokens(text),
                report=judged and judged.report,
                facts=judged and judged.facts,
                outcome=outcome,
                reason=reason,
                parent_ids=shown,
            )
        )


def source_tokens(contents: Sequence[str]) -> int:
    """Return the estimated tokens of the whole cluster, joined the way a summary is."""
    return estimate_tokens(" ".join(contents))


def escalate(
    requests: Sequence[Request],
    encode: Encode,
    *,
    summarizer: Summarizer = EXTRACTIVE,
    settings: SummarySettings = DEFAULT_SETTINGS,
    parent_ids: Sequence[tuple[str, ...]] = (),
) -> list[Trial]:
    """Return what became of each of some independent requests, in their order.

    `encode` is called at most twice per summarizer, and never with a text that is a turn verbatim.
    `parent_ids` are of the context of each request. ValueError if the encoder returns another
    number of vectors than it was given texts.
    """
    shown = parent_ids or [()] * len(requests)
    trials = [
        Trial(request, source_tokens(request.texts), ids)
        for request, ids in zip(requests, shown, strict=True)
    ]
    stands_in = settings
    if summarizer.name != EXTRACTIVE.name:
        _try(trials, summarizer, encode, settings)
        # What was configured is a share of what the configured summarizer cuts.
        stands_in = settings._replace(density=0.0, aggressive_density=0.0)
        for trial in trials:
            trial.fallback = "" if trial.taken else trial.attempts[-1].outcome.value
    _try([trial for trial in trials if not trial.taken], EXTRACTIVE, encode, stands_in)
    return trials


def _try(
    trials: Sequence[Trial], summarizer: Summarizer, encode: Encode, settings: SummarySettings
) -> None:
    """Let one summarizer try: its primary cut, then its aggressive one where that was not smaller.

    Afterwards each trial is taken or has one attempt more.
    """
    waiting, own = list(trials), summarizer.densities
    cuts = (
        (summarizer.name, settings.density or own[0]),
        (summarizer.name + AGGRESSIVE_SUFFIX, settings.aggressive_density or own[1]),
    )
    for method, density in cuts:
        smaller: list[tuple[Trial, Draft]] = []
        too_large: list[Trial] = []
        for trial in waiting:
            draft = summarizer.write(trial.request, density)
            shown = trial.parent_ids if summarizer.uses_context else ()
            tokens = 0 if isinstance(draft, Refusal) else estimate_tokens(draft.text)
            if isinstance(draft, Refusal):
                trial.reject(draft.outcome, draft.detail, method, shown)
            elif secret := find_text_sensitivity(draft.text):
                # Turns are joined: "the password?" and the answer to it may meet.
                trial.reject(Outcome.SECRET, f"its text reads like {secret}", method, shown)
            elif tokens < trial.source_tokens:
                smaller.append((trial, draft))
            else:
                said = f"{tokens} tokens are not fewer than the {trial.source_tokens}"
                reason = f"its {said} of its sources"
                trial.reject(Outcome.NOT_SMALLER, reason, method, shown, draft.text)
                too_large.append(trial)
        _judge_all(smaller, method, encode, settings.threshold)
        waiting = too_large


def _judge_all(
    drafted: Sequence[tuple[Trial, Draft]], method: str, encode: Encode, threshold: float
) -> None:
    for (trial, draft), vector in zip(drafted, _vectors(drafted, encode), strict=True):
        raw, turns = draft.raw_confidence, trial.request
        report = judge(vector, turns.vectors, raw=raw, threshold=threshold)
        facts = check_facts(draft.text, turns.texts)
        trial.last = Judged(draft, method, estimate_tokens(draft.text), report, facts)
        trial.taken = report.passed and facts.passed
        if not trial.taken:
            outcome = Outcome.FACTS if report.passed else Outcome.GATE
            reason = "; ".join((*report.reasons, *facts.reasons))
            shown = () if draft.kept else trial.parent_ids
            trial.reject(outcome, reason, method, shown, draft.text)


def _vectors(
    drafted: Sequence[tuple[Trial, Draft]], encode: Encode
) -> list[NDArray[np.floating[Any]]]:
    """Return one vector per draft; a draft that is one turn verbatim already has its own."""
    own = [_own_vector(trial.request, draft) for trial, draft in drafted]
    mixed = [draft.text for (_, draft), vector in zip(drafted, own, strict=True) if vector is None]
    encoded = list(encode(mixed)) if mixed else []
    if len(encoded) != len(mixed):
        raise ValueError(f"the encoder returned {len(encoded)} vectors for {len(mixed)} summaries")
    rows = iter(encoded)
    return [next(rows) if vector is None else vector for vector in own]


def _own_vector(request: Request, draft: Draft) -> NDArray[np.floating[Any]] | None:
    if len(draft.kept) == 1:
        return request.vectors[draft.kept[0]]
    places = (i for i, text in enumerate(request.texts) if text == draft.text)
    place = next(places, None)
    return None if place is None else request.vectors[place]


# What an abstractive summarizer is shown of the session before a cluster.


CONTEXT_TOKENS = 96
"""Estimated tokens of earlier summaries per request. More ties a summary closer to what came before
and invites a model to repeat it; the reference's default (research/peers.md 1.7)."""

_SESSIONS = 1024
"""Sessions remembered. Batches come session by session, so that one would do; more forgive a batch
that interleaves a few."""


class SessionContext:
    """The newest accepted summaries of each session that fit into CONTEXT_TOKENS.

    One object serves a whole night. Clusters of a session must be remembered oldest first, or a
    summary would be shown what comes after it.
    """

    def __init__(self) -> None:
        self._sessions: OrderedDict[tuple[str | None, ...], list[Summary]] = OrderedDict()

    def before(self, cluster: Cluster) -> tuple[Summary, ...]:
        """Return what the next cluster of a session is shown, oldest first; often nothing.

        Never anything of another user, session or wing.
        """
        return tuple(self._sessions.get((cluster.user, cluster.session_id, cluster.wing), ()))

    def remember(self, summary: Summary) -> None:
        """Take in a session's next summary; one that is not accepted is passed over.

        The newest that fit are kept without gaps: one that is too long for the budget hides all
        before it.
        """
        if summary.status != "accepted":
            return
        key = summary.user, summary.session_id, summary.wing
        kept = [*self._sessions.pop(key, []), summary]
        while kept and sum(earlier.summary_tokens for earlier in kept) > CONTEXT_TOKENS:
            kept.pop(0)
        self._sessions[key] = kept
        if len(self._sessions) > _SESSIONS:
            self._sessions.popitem(last=False)


# From clusters to judged summaries, batch by batch, with those of earlier nights used again.
#
# Raw turns are only read.


RECIPE_VERSION = "2"
# Raised when the same turns would be summarised to other text or other numbers, so that old ones
# are not re-used.


class Settled(NamedTuple):
    """What became of a cluster.

    The summary of a value of the content store has no positions: rows move when an earlier one
    comes or goes.
    """

    summary: Summary
    attempts: tuple[Attempt, ...]
    # float32 (d,) of the texts that were embedded for it by another process, by text.
    vectors: Mapping[str, NDArray[np.float32]]


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
    """Return what decides a summary beside its turns: encoder, settings, summarizer, versions.

    Part of the kind under which results are kept.
    """
    return hash_json(
        [
            [RECIPE_VERSION, FACTS_VERSION],
            fingerprint_digest,
            settings._asdict(),
            [summarizer.name, dict(summarizer.recipe)],
            dict(EXTRACTIVE.recipe),
        ]
    )


def summarize_batch(
    batch: Sequence[ClusterText],
    encode: Encode,
    *,
    summarizer: Summarizer = EXTRACTIVE,
    known: Lookup | None = None,
    settings: SummarySettings = DEFAULT_SETTINGS,
    context: SessionContext | None = None,
) -> BatchResult:
    """Summarise every cluster of a batch and judge every candidate.

    A cluster that is known, by what earlier nights made with the same `recipe_digest`, is used
    again: its key tells its turns and the earlier summaries that its summarizer is shown. How
    clusters are cut into batches does not change the result, if those of one session come oldest
    first and a `context` carries sessions over from batch to batch; only needed where
    `summarizer.uses_context`. ValueError if the encoder, which is that of the batch's vectors,
    returns another number of vectors than it was given texts, or a cluster's contents and vectors
    differ in number.
    """
    kept = context or SessionContext()
    keys: dict[int, bytes] = {}
    settled: dict[int, Settled] = {}
    made: list[int] = []
    for wave in _waves(batch, summarizer.uses_context):
        shown = {
            place: kept.before(batch[place].cluster) if summarizer.uses_context else ()
            for place in wave
        }
        keys |= {place: result_key(batch[place].cluster, shown[place]) for place in wave}
        held = known([keys[place] for place in wave]) if known is not None else {}
        fresh: list[int] = []
        for place in wave:
            cluster, contents, _ = batch[place]
            if (again := held.get(keys[place])) is not None:
                settled[place] = again._replace(summary=_rebind(again.summary, cluster))
            elif cluster.trivial:
                settled[place] = Settled(_trivial(cluster, contents[0]), (), {})
                made.append(place)
            else:
                fresh.append(place)
        requests = [
            Request(item.cluster.cluster_id, item.contents, item.vectors, item.cluster.user,
                    tuple(earlier.text for earlier in shown[place]))
            for place in fresh
            for item in [batch[place]]
        ]  # fmt: skip
        parents = [tuple(earlier.summary_id for earlier in shown[place]) for place in fresh]
        trials = escalate(
            requests, encode, summarizer=summarizer, settings=settings, parent_ids=parents
        )
        for place, trial in zip(fresh, trials, strict=True):
            summary = _summary_of(batch[place].cluster, trial)
            settled[place] = Settled(summary, tuple(trial.attempts), {})
        made += fresh
        for place in wave:
            kept.remember(settled[place].summary)
    found = [settled[place] for place in range(len(batch))]
    lasting = [place for place in made if settled[place].summary.fallback not in TRIED_AGAIN]
    return BatchResult(
        [item.summary for item in found],
        [attempt for item in found for attempt in item.attempts],
        len(made),
        [keys[place] for place in range(len(batch))],
        {keys[place]: settled[place] for place in lasting},
    )


def result_key(cluster: Cluster, shown: Sequence[Summary] = ()) -> bytes:
    """Return the key of a cluster's summary; `shown` are what its summarizer is shown.

    The cluster's id tells its members and what they say.
    """
    parents = () if cluster.trivial else shown
    return bytes.fromhex(hash_text(cluster.cluster_id, *(p.summary_id for p in parents)))


def _waves(batch: Sequence[ClusterText], in_order: bool) -> list[list[int]]:
    """Return places that may be summarised together: a session's clusters one after the other."""
    if not in_order:
        return [list(range(len(batch)))]
    waves: list[list[int]] = []
    ranks: Counter[tuple[str | None, str, str | None]] = Counter()
    for place, (cluster, _, _) in enumerate(batch):
        key = cluster.user, cluster.session_id, cluster.wing
        if ranks[key] == len(waves):
            waves.append([])
        waves[ranks[key]].append(place)
        ranks[key] += 1
    return waves


def _rebind(summary: Summary, cluster: Cluster) -> Summary:
    """Give a summary the sources and today's positions of its cluster."""
    return replace(
        summary,
        source_positions=cluster.member_positions,
        source_ids=cluster.member_ids,
        first_us=cluster.first_us,
        last_us=cluster.last_us,
        user=cluster.user,
        wing=cluster.wing,
    )


def _trivial(cluster: Cluster, text: str) -> Summary:
    tokens = source_tokens([text])
    reason = "one turn: it stands for itself"
    return _summary(cluster, text, "trivial", METHOD_TRIVIAL, (tokens, tokens), reason)


def _summary_of(cluster: Cluster, trial: Trial) -> Summary:
    """Return the summary of a settled cluster: what was taken, or the last one that was judged."""
    status: Status = "accepted" if trial.taken else "declined"
    reason, last = "" if trial.taken else trial.attempts[-1].reason, trial.last
    if last is None or (not trial.taken and trial.attempts[-1].outcome is Outcome.SECRET):
        made = _summary(cluster, "", status, METHOD_NONE, (trial.source_tokens, 0), reason)
        return replace(made, fallback=trial.fallback)
    tokens = trial.source_tokens, last.tokens
    return replace(
        _summary(cluster, last.draft.text, status, last.method, tokens, reason),
        report=last.report,
        facts=last.facts,
        parent_ids=() if last.draft.kept else trial.parent_ids,
        fallback=trial.fallback,
    )


def _summary(
    cluster: Cluster, text: str, status: Status, method: str, tokens: tuple[int, int], reason: str
) -> Summary:
    """Return the summary of a cluster that nobody judged."""
    return Summary(
        summary_id=summary_id(cluster.cluster_id, method, text),
        cluster_id=cluster.cluster_id,
        session_id=cluster.session_id,
        text=text,
        status=status,
        method=method,
        source_ids=cluster.member_ids,
        source_positions=cluster.member_positions,
        first_us=cluster.first_us,
        last_us=cluster.last_us,
        source_tokens=tokens[0],
        summary_tokens=tokens[1],
        report=None,
        reason=reason,
        user=cluster.user,
        wing=cluster.wing,
    )


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
    values: Row = {n: tuple(v) if isinstance(v, list) else v for n, v in row.items()}
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
    return pa.schema(
        [*table_schema(kind, without=_VERDICTS), *gate, pa.field("facts", pa.string())]
    )


@contextmanager
def write_tables(summaries: Path, attempts: Path) -> Generator[Callable[[BatchResult], None]]:
    """Yield a function that takes batches; both tables are put in place when the block ends well.

    One row group of each is in memory. After an exception both old tables stay: they are closed
    before either file is put in place.
    """
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
    """Yield the summaries of a table in its order; one row group is in memory at a time.

    StoreError if the file is missing or is no summary table.
    """
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
    before, after, kept, total = (
        int(accepted[name].sum()) for name in ("source_tokens", "summary_tokens", "kept", "total")
    )
    outcomes = pl.scan_parquet(attempts).select("outcome").collect()
    return {
        "by_status": _counts(made["status"]),
        "by_method": _counts(accepted["method"]),
        "by_fallback": _counts(made["fallback"].filter(made["fallback"] != "")),
        "attempts_by_outcome": _counts(outcomes["outcome"]),
        "summarised_turns": int(accepted["turns"].sum()),
        "source_tokens": before,
        "summary_tokens": after,
        "tokens_saved_share": round(1.0 - after / before, _DECIMALS) if before else None,
        "q_align": quantiles(made["gate_align"].drop_nulls().to_list()),
        "q_cover": quantiles(made["gate_cover"].drop_nulls().to_list()),
        "facts_kept": kept,
        "facts_total": total,
        "facts_kept_share": round(kept / total, _DECIMALS) if total else None,
    }


_DECIMALS = 4


def _counts(values: pl.Series) -> dict[str, int]:
    return dict(values.value_counts().sort(values.name).iter_rows())


# What became of a cluster as a value of the content store, and a task that makes such values.
#
# The task is only for summarizers that need nothing but the cluster: what depends on earlier
# summaries of a session, on a service or on a large model goes the way of `summarize_batch`.


SHARD_CLUSTERS = 256
"""Clusters of a shard (9 MB of texts and vectors). More need more memory in every worker and lose
more work to a kill (4 s), fewer make more files."""

_POSITIONS = "source_positions"
_TASK = "summaries"


def read_settled(value: bytes) -> Settled:
    """Return what `write_settled` wrote."""
    told = json.loads(value)
    summary = from_row(Summary, {**told["summary"], _POSITIONS: []})
    attempts = tuple(from_row(Attempt, row) for row in told["attempts"])
    vectors = {
        text: np.frombuffer(base64.b64decode(data), dtype="<f4")
        for text, data in told["vectors"].items()
    }
    return Settled(summary, attempts, vectors)


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

    summarizer: Summarizer  # one that does not use context
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

            batch = _cluster_texts(rows)
            result = summarize_batch(
                batch, encode, summarizer=self.summarizer, settings=self.settings
            )
            values = [write_settled(_with_vectors(result.fresh[k], embedded)) for k in result.keys]
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


def _cluster_texts(rows: RecordBatch) -> list[ClusterText]:
    found: list[ClusterText] = []
    columns = [rows.column(name).to_pylist() for name in ("cluster", "texts", "vectors")]
    for told, texts, data in zip(*columns, strict=True):
        cluster = Cluster(**json.loads(told))
        cluster = replace(cluster, member_ids=tuple(cluster.member_ids), member_positions=())
        vectors = np.frombuffer(data, dtype="<f4").reshape(len(texts), -1)
        found.append(ClusterText(cluster, texts, vectors))
    return found


def _with_vectors(settled: Settled, embedded: Mapping[str, NDArray[np.float32]]) -> Settled:
    texts = {settled.summary.text, *(attempt.text for attempt in settled.attempts)}
    return settled._replace(vectors={text: embedded[text] for text in texts & embedded.keys()})


# Summaries of all clusters of a table: what is known is used again, what is new is made.


_SELF_CONTAINED = (ExtractiveSummarizer, SentenceSummarizer)
"""Summarizers that read nothing but their cluster and load no model: a runner can run them."""

Embed = Callable[[list[str]], Embedded]
"""Gives the vectors of texts, encoded as documents, and how many of them were new."""


class Summarized(NamedTuple):
    """What was new: clusters that were summarised, and texts that were embedded for it."""

    made: int
    embedded: int


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
) -> Summarized:
    """Summarise every cluster of a table; of clusters that are known no text is read.

    What the runner can make, it makes before the first batch. Batches are made here otherwise, and
    where a result is gone again.

    Args:
        sources: The table, and where its texts and vectors are.
        results: What became of clusters, of `summary_kind`; afterwards it holds nothing else.
        vectors: Of the texts' `vector_kind`; `embed` keeps vectors there too.
        embed: Gives vectors.
        take: Given every batch, in the order of the table.
        summarizer: Who writes.
        settings: Densities and threshold.
        export: The ONNX export that made the members' vectors; None if something else did.
        runner: Who runs the task, with its files below `shards`, removed at the end.
        shards: See `runner`.
        progress: Told of clusters done.

    Raises:
        ShardError: The task failed; what was made is kept.
        EncoderError: The export is absent or damaged, or `embed` fails.
    """
    count, done, made, embedded = count_rows(sources.clusters), 0, 0, 0
    by_runner = export is not None and isinstance(summarizer, _SELF_CONTAINED)
    if export is not None and by_runner:
        settled = _settled_ids(results, sources)
        before = {fragment.key for fragment in results.fragments}
        task = SummarizeClusters(summarizer, settings, export)
        filled = fill(
            results, _new_rows(sources, settled), task, runner, shards, progress,
            total=max(count - len(settled), 0), shard_rows=SHARD_CLUSTERS,
        )  # fmt: skip
        new = [fragment for fragment in results.fragments if fragment.key not in before]
        made, embedded = filled.computed, _keep_vectors(new, vectors)
    # A summarizer that is shown earlier summaries may see others: only a batch can tell.
    settled = set[str]() if summarizer.uses_context else _settled_ids(results, sources)

    def known(wanted: Sequence[bytes]) -> Mapping[bytes, Settled]:
        return {key: read_settled(value) for key, value in results.get(wanted).items()}

    def encode(texts: list[str]) -> NDArray[np.float32]:
        nonlocal embedded
        found = embed(texts)
        embedded += found.computed
        return found.vectors

    context, keys = SessionContext(), list[bytes]()
    for batch in iter_cluster_texts(sources, skip=settled):
        result = summarize_batch(
            batch, encode, summarizer=summarizer, known=known, settings=settings, context=context
        )
        results.put(list(result.fresh), list(map(write_settled, result.fresh.values())))
        made += result.made
        keys += result.keys
        done += len(batch)
        if not by_runner:
            progress.update(_TASK, done, count)
        take(result)
    results.prune(keys)
    return Summarized(made, embedded)


def _settled_ids(results: ContentStore, sources: ClusterSources) -> set[str]:
    """Return the clusters whose summaries are used again."""
    settled: set[str] = set()
    clusters = iter_clusters(sources.clusters)
    while batch := list(islice(clusters, BATCH_CLUSTERS)):
        held = (results.find(map(result_key, batch)) >= 0).tolist()
        settled.update(compress((cluster.cluster_id for cluster in batch), held))
    return settled


def _new_rows(sources: ClusterSources, settled: Container[str]) -> Iterator[RecordBatch]:
    for batch in iter_cluster_texts(sources, skip=settled):
        if new := [item for item in batch if item.cluster.cluster_id not in settled]:
            yield cluster_rows(new)


def _keep_vectors(made: Iterable[Fragment], vectors: ContentStore) -> int:
    """Keep the vectors of the texts that the task embedded; return how many were new."""
    count = 0
    for fragment in made:
        values = map(read_settled, open_table(fragment.path)[VALUE].to_pylist())
        found = {text_key(text): v for item in values for text, v in item.vectors.items()}
        is_held = (vectors.find(list(found)) >= 0).tolist()
        new = {key: found[key] for key, held in zip(found, is_held, strict=True) if not held}
        put_vectors(vectors, new)
        count += len(new)
    return count
