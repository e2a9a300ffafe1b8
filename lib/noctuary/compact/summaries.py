"""From clusters to judged summaries: escalation, re-use between nights, and their table."""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

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
from noctuary.embed.onnx import OnnxEncoder
from noctuary.sources.corpus import count_rows
from noctuary.text.marks import estimate_tokens
from noctuary.text.secrets import find_text_sensitivity
from noctuary.work.content import KEY, KEY_BYTES, VALUE, ContentStore, fill
from noctuary.work.shards import BatchFunction, RecordBatch, Runner

if TYPE_CHECKING:
    import polars as pl

Status = Literal["accepted", "declined", "trivial"]


@dataclass(frozen=True, slots=True)
class Summary:
    """One cluster's outcome; only an accepted one may reach a snapshot."""

    summary_id: str  # 16 hex characters of cluster, method and text
    cluster_id: str
    session_id: str
    text: str  # of a declined one the last draft that was judged, or ""; of a trivial one the turn
    status: Status
    method: str  # the summarizer, "trivial" or "none"
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
    facts: FactReport | None = None  # None where nothing was checked
    fallback: str = ""  # an Outcome: why the configured summarizer's text is not used; "" if it is


# Escalation (libravdb mathematics, section 5.3): the configured summarizer, then the extractive one
# where its draft is rejected; where that fails too, the turns stay raw.

Vectors = NDArray[np.floating[Any]]
Encode = Callable[[list[str]], Vectors]
"""Vectors of the given texts, shape (m, d), encoded as documents."""


class SummarySettings(NamedTuple):
    """Settings that affect the text and the verdict of a summary."""

    density: float = 0.0  # share that the configured summarizer keeps, in [0, 1]; 0 for its own
    threshold: float = TAU_PRESERVE  # least alignment of an accepted summary, in [-1, 1]

    @staticmethod
    def of(settings: CompactionSettings) -> SummarySettings:
        """Return the settings of a store."""
        return SummarySettings(settings.density, settings.preserve_threshold)


DEFAULT_SETTINGS = SummarySettings()


class Verdict(NamedTuple):
    """The verdict on one draft."""

    method: str
    text: str  # "" where there is none or where it must not be kept
    outcome: Outcome | None = None  # why it was rejected; None of the one that is taken
    reason: str = ""  # the same in words, with the numbers
    report: GateReport | None = None  # None where it was rejected unjudged
    facts: FactReport | None = None


def escalate(
    requests: Sequence[Request],
    encode: Encode,
    *,
    summarizer: Summarizer = EXTRACTIVE,
    settings: SummarySettings = DEFAULT_SETTINGS,
) -> list[list[Verdict]]:
    """Return the verdicts on each request's drafts in the order of trying; the last one decides."""
    found: list[list[Verdict]] = [[] for _ in requests]
    is_extractive = summarizer.name == EXTRACTIVE.name
    for writer in (summarizer,) if is_extractive else (summarizer, EXTRACTIVE):
        density = (settings.density if writer is summarizer else 0.0) or writer.density
        waiting = [i for i, tried in enumerate(found) if not tried or tried[-1].outcome]
        chosen = [requests[i] for i in waiting]
        judged = _try(chosen, writer, density, encode, settings.threshold)
        for i, verdict in zip(waiting, judged, strict=True):
            found[i].append(verdict)
    return found


def _try(
    requests: Sequence[Request], writer: Summarizer, density: float, encode: Encode, least: float
) -> Iterator[Verdict]:
    """Yield the verdict on one summarizer's draft for each request."""
    drafts = [writer.write(request, density) for request in requests]
    screened = [_screen(r, draft, writer) for r, draft in zip(requests, drafts, strict=True)]
    passed = [(r, v.text) for r, v in zip(requests, screened, strict=True) if v.outcome is None]
    vectors = iter(_vectors(passed, encode))
    for request, draft, verdict in zip(requests, drafts, screened, strict=True):
        if verdict.outcome is not None or isinstance(draft, Refusal):
            yield verdict
            continue
        report = judge(next(vectors), request.vectors, raw=draft.raw_confidence, threshold=least)
        facts = check_facts(draft.text, request.texts)
        outcome = Outcome.GATE if not report.passed else None if facts.passed else Outcome.FACTS
        reason = "; ".join((*report.reasons, *facts.reasons))
        yield Verdict(writer.name, draft.text, outcome, reason, report, facts)


def _screen(request: Request, draft: Draft | Refusal, writer: Summarizer) -> Verdict:
    """Reject a draft without checking facts if possible."""
    if isinstance(draft, Refusal):
        return Verdict(writer.name, "", *draft)
    # Turns are joined: "the password?" and the answer to it may meet.
    if secret := find_text_sensitivity(draft.text):
        return Verdict(writer.name, "", Outcome.SECRET, f"its text reads like {secret}")
    tokens, most = estimate_tokens(draft.text), source_tokens(request.texts)
    if tokens < most:
        return Verdict(writer.name, draft.text)
    reason = f"its {tokens} tokens are not fewer than the {most} of its sources"
    return Verdict(writer.name, draft.text, Outcome.NOT_SMALLER, reason)


def source_tokens(contents: Sequence[str]) -> int:
    """Return the estimated tokens of the whole cluster, joined the way a summary is."""
    return estimate_tokens(" ".join(contents))


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


# Raised when the same turns would be summarised to other text or other numbers.
RECIPE_VERSION = "3"


def recipe_digest(
    fingerprint_digest: str,
    settings: SummarySettings = DEFAULT_SETTINGS,
    summarizer: Summarizer = EXTRACTIVE,
) -> str:
    """Digest the inputs of a summary besides its turns: encoder, settings, summarizer, versions."""
    versions, recipe = [RECIPE_VERSION, FACTS_VERSION], [summarizer.name, dict(summarizer.recipe)]
    fallback = dict(EXTRACTIVE.recipe)
    return hash_json([versions, fingerprint_digest, settings._asdict(), recipe, fallback])


def summarize_batch(
    batch: Sequence[ClusterText],
    encode: Encode,
    *,
    summarizer: Summarizer = EXTRACTIVE,
    settings: SummarySettings = DEFAULT_SETTINGS,
) -> list[Summary]:
    """Summarise every cluster of a batch and judge every draft; how they are batched is the same.

    ValueError if texts and vectors differ in number.
    """
    requests = [
        Request(cluster.cluster_id, texts, vectors, cluster.user)
        for cluster, texts, vectors in batch
        if not cluster.trivial
    ]
    judged = iter(escalate(requests, encode, summarizer=summarizer, settings=settings))
    return [_settle(c, texts, [] if c.trivial else next(judged)) for c, texts, _ in batch]


def _settle(cluster: Cluster, texts: Sequence[str], tried: Sequence[Verdict]) -> Summary:
    """Return the summary that the verdicts decide; of a trivial cluster its only turn."""
    status: Status = "trivial"
    if tried:
        last = tried[-1]
        status = "accepted" if last.outcome is None else "declined"
        if last.report is None:
            last = last._replace(text="", method="none")
    else:
        last = Verdict("trivial", texts[0], None, "one turn: it stands for itself")
    return Summary(
        summary_id=summary_id(cluster.cluster_id, last.method, last.text),
        cluster_id=cluster.cluster_id,
        session_id=cluster.session_id,
        text=last.text,
        status=status,
        method=last.method,
        source_tokens=source_tokens(texts),
        summary_tokens=estimate_tokens(last.text),
        report=last.report,
        reason=last.reason,
        facts=last.facts,
        fallback=str(tried[0].outcome) if len(tried) > 1 else "",
        **_sources(cluster),
    )


def _sources(cluster: Cluster) -> dict[str, Any]:
    """Return the fields of a summary that describe its sources, as they are today."""
    same = {name: getattr(cluster, name) for name in ("first_us", "last_us", "user", "wing")}
    return {"source_positions": cluster.member_positions, "source_ids": cluster.member_ids, **same}


# Summaries as rows: of the table, and of the content store between nights.

_VERDICTS = ("report", "facts")
_GATE_PREFIX = "gate_"


def to_row(summary: Summary) -> Row:
    """Return a summary as a row: the gate's report in columns, the facts as JSON."""
    row = {name: getattr(summary, name) for name in Summary.__slots__ if name not in _VERDICTS}
    for name in GateReport.__slots__:
        row[_GATE_PREFIX + name] = None if summary.report is None else getattr(summary.report, name)
    return {**row, "facts": None if summary.facts is None else summary.facts.to_json()}


def from_row(row: Row) -> Summary:
    """Return the summary of a row; ValueError if its fact report is damaged."""
    values = with_tuples(row)
    gate = {name: values.pop(_GATE_PREFIX + name) for name in GateReport.__slots__}
    facts = values.pop("facts")
    return Summary(
        report=None if gate["passed"] is None else GateReport(**gate),
        facts=None if facts is None else FactReport.from_json(facts),
        **values,
    )


def summary_schema() -> ArrowSchema:
    """Return the columns of the table."""
    import pyarrow as pa

    gate = [f.with_name(_GATE_PREFIX + f.name) for f in table_schema(GateReport)]
    own = table_schema(Summary, without=_VERDICTS)
    return pa.schema([*own, *gate, pa.field("facts", pa.string())])


@contextmanager
def write_summaries(path: Path) -> Generator[Callable[[Summary], None]]:
    """Yield a function that appends a summary; if the block ends well, the table is replaced."""
    with replacement(path) as tmp, write_rows(tmp, summary_schema()) as add:
        yield lambda summary: add(to_row(summary))


def iter_summaries(path: Path) -> Iterator[Summary]:
    """Yield the summaries of a table in its order, a row group at a time."""
    return map(from_row, iter_rows(path, summary_schema()))


def summary_facts(path: Path) -> dict[str, Any]:
    """Return counts and shares over the table; tokens and facts are of accepted summaries."""
    import polars as pl

    report = pl.col("facts").str
    made = (
        pl.scan_parquet(path)
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
    return {
        "by_status": _counts(made["status"]),
        "by_method": _counts(accepted["method"]),
        "by_fallback": _counts(made["fallback"].filter(made["fallback"] != "")),
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


# Summaries as values of the content store, without positions (rows move), and a task that makes
# them.

SHARD_CLUSTERS = 256  # of a shard, 9 MB: more lose more work to a kill, fewer make more files

_POSITIONS = "source_positions"
_VECTOR = "vector"  # on its way from a worker to the store of vectors
_TASK = "summaries"


def summary_kind(recipe: str) -> str:
    """Return the kind of the summaries made by a recipe (`recipe_digest`)."""
    return f"summaries:{recipe}"


def summary_key(cluster: Cluster) -> bytes:
    """Return the key of a cluster's summary."""
    return bytes.fromhex(hash_text(cluster.cluster_id))


def read_value(value: bytes) -> tuple[Summary, Vectors | None]:
    """Return the summary that `write_value` wrote, and the vector of its text, if it is there."""
    row = json.loads(value)
    packed = row.pop(_VECTOR, None)
    vector = None if packed is None else np.frombuffer(b64decode(packed), dtype="<f4")
    return from_row({**row, _POSITIONS: []}), vector


def write_value(summary: Summary, vector: Vectors | None = None) -> bytes:
    """Return a summary as a value of the content store, with the vector that it was judged by."""
    row = to_row(summary)
    del row[_POSITIONS]
    if vector is not None:
        row[_VECTOR] = b64encode(np.asarray(vector, dtype="<f4").tobytes()).decode("ascii")
    return json.dumps(row).encode("ascii")


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

            encoded: dict[str, Vectors] = {}

            def encode(texts: list[str]) -> NDArray[np.float32]:
                vectors = encoder().encode_documents(texts)
                encoded.update(zip(texts, vectors, strict=True))
                return vectors

            batch = [_read_cluster(row) for row in rows.to_pylist()]
            made = summarize_batch(
                batch, encode, summarizer=self.summarizer, settings=self.settings
            )
            told = [write_value(summary, encoded.get(summary.text)) for summary in made]
            values = pa.array(told, pa.binary())
            return pa.record_batch([rows.column(KEY), values], [KEY, VALUE])

        return summarize


def cluster_rows(batch: Sequence[ClusterText]) -> RecordBatch:
    """Return the rows that the task reads: key, cluster, texts, vectors (float32, row-major)."""
    import pyarrow as pa

    vectors = [np.asarray(item.vectors, dtype="<f4").tobytes() for item in batch]
    columns = {
        KEY: pa.array([summary_key(item.cluster) for item in batch], pa.binary(KEY_BYTES)),
        "cluster": pa.array([_cluster_json(item.cluster) for item in batch], pa.string()),
        "texts": pa.array([list(item.contents) for item in batch], pa.list_(pa.string())),
        "vectors": pa.array(vectors, pa.binary()),
    }
    return pa.record_batch(list(columns.values()), names=list(columns))


def _cluster_json(cluster: Cluster) -> str:
    row = {name: getattr(cluster, name) for name in Cluster.__slots__}
    # Without positions equal clusters are equal rows, wherever they are in the store tonight.
    return json.dumps({**row, "member_positions": []})


def _read_cluster(row: Row) -> ClusterText:
    vectors = np.frombuffer(row["vectors"], dtype="<f4").reshape(len(row["texts"]), -1)
    return ClusterText(Cluster(**with_tuples(json.loads(row["cluster"]))), row["texts"], vectors)


def summarize_clusters(
    sources: ClusterSources,
    table: Path,
    results: ContentStore,
    encode: Encode,
    keep: Callable[[Mapping[str, Vectors]], None],
    *,
    summarizer: Summarizer,
    settings: SummarySettings,
    export: Path | None,
    runner: Runner,
    shards: Path,
    progress: Progress = SILENT,
) -> int:
    """Write the table of all clusters' summaries; texts of known clusters are not read.

    The runner makes new ones by the ONNX export that made the members' vectors, with files below
    `shards`, removed at the end. Without an export (None), and where a result was lost, they are
    made here. `keep` is told the vectors of new texts. Afterwards `results`, of `summary_kind`,
    holds nothing else. Returns how many were made. ShardError if the task failed: what was made is
    kept.
    """
    count, keys, made = count_rows(sources.clusters), list[bytes](), 0
    if export is not None:
        settled = _settled_ids(results, sources)
        new_rows = (
            cluster_rows(new)
            for batch in iter_cluster_texts(sources, skip=settled)
            if (new := [item for item in batch if item.cluster.cluster_id not in settled])
        )
        made = fill(
            results, new_rows, SummarizeClusters(summarizer, settings, export), runner, shards,
            progress, total=max(count - len(settled), 0), shard_rows=SHARD_CLUSTERS,
        ).computed  # fmt: skip
    with write_summaries(table) as add:
        for batch in iter_cluster_texts(sources, skip=_settled_ids(results, sources)):
            wanted = [summary_key(item.cluster) for item in batch]
            known = _take_known(results, wanted, keep)
            new = [item for key, item in zip(wanted, batch, strict=True) if key not in known]
            fresh = {
                bytes.fromhex(hash_text(summary.cluster_id)): summary
                for summary in summarize_batch(
                    new, encode, summarizer=summarizer, settings=settings
                )
            }
            kept = {key: s for key, s in fresh.items() if s.fallback not in TRIED_AGAIN}
            results.put(list(kept), list(map(write_value, kept.values())))
            for key, item in zip(wanted, batch, strict=True):
                add(fresh.get(key) or replace(known[key], **_sources(item.cluster)))
            keys += wanted
            made += len(fresh)
            if export is None:
                progress.update(_TASK, len(keys), count)
    results.prune(keys)
    return made


def _take_known(
    results: ContentStore, keys: Sequence[bytes], keep: Callable[[Mapping[str, Vectors]], None]
) -> dict[bytes, Summary]:
    """Return summaries by key, and hand on the vectors that workers left with them."""
    read = {key: read_value(value) for key, value in results.get(keys).items()}
    if left := {key: (s, vector) for key, (s, vector) in read.items() if vector is not None}:
        keep({summary.text: vector for summary, vector in left.values()})
        results.put(list(left), [write_value(summary) for summary, _ in left.values()])
    return {key: summary for key, (summary, _) in read.items()}


def _settled_ids(results: ContentStore, sources: ClusterSources) -> set[str]:
    """Return the clusters whose summaries are used again."""
    settled: set[str] = set()
    clusters = iter_clusters(sources.clusters)
    while batch := list(islice(clusters, BATCH_CLUSTERS)):
        held = (results.find(map(summary_key, batch)) >= 0).tolist()
        settled.update(c.cluster_id for c, is_held in zip(batch, held, strict=True) if is_held)
    return settled
