"""From clusters to judged summaries, batch by batch."""

from __future__ import annotations

import base64
import json
import os
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import compress, groupby, islice
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from noctuary.compact.clusters import Cluster, ClusterText, SessionTurn, iter_clusters
from noctuary.compact.escalation import DEFAULT_SETTINGS, Encode, SummarySettings, Trial, escalate
from noctuary.compact.gate import FACTS_VERSION, FactReport, GateReport
from noctuary.compact.summarizers import (
    EXTRACTIVE,
    METHOD_NONE,
    METHOD_TRIVIAL,
    TRIED_AGAIN,
    Attempt,
    Earlier,
    ExtractiveSummarizer,
    Outcome,
    Request,
    SentenceSummarizer,
    SessionContext,
    Status,
    Summarizer,
    Summary,
    source_tokens,
)
from noctuary.core.errors import StoreError
from noctuary.core.files import hash_json, hash_text
from noctuary.core.types import SILENT, Progress, summary_id
from noctuary.embed.documents import Embedded, put_vectors, text_key
from noctuary.embed.onnx import OnnxEncoder
from noctuary.sources.corpus import count_rows, open_duckdb
from noctuary.text.marks import CLOSING_CHARS, QUESTION_MARKS
from noctuary.work.content import KEY, KEY_BYTES, VALUE, ContentStore, fill
from noctuary.work.shards import BatchFunction, Fragment, RecordBatch, Runner, open_table

# Columns of the tables of summaries and attempts, and the way from a row to its noun and back.


ArrowSchema = Any
# pyarrow ships no types.

Row = dict[str, Any]

_GATE_PREFIX = "gate_"
_JUDGED = frozenset({"report", "facts"})


def summary_row(summary: Summary) -> Row:
    """Return the row of a summary."""
    row = {name: getattr(summary, name) for name in Summary.__slots__ if name not in _JUDGED}
    return {**row, **_verdict_row(summary.report, summary.facts)}


def summary_of(row: Row) -> Summary:
    """Return the summary of a row.

    Raises:
        ValueError: Its fact report is no JSON of one.
    """
    report, facts = _verdicts_of(row)
    for name in ("source_ids", "source_positions", "parent_ids"):
        row[name] = tuple(row[name])
    return Summary(report=report, facts=facts, **row)


def attempt_row(attempt: Attempt) -> Row:
    """Return the row of an attempt."""
    row = {name: getattr(attempt, name) for name in Attempt.__slots__ if name not in _JUDGED}
    row["outcome"] = attempt.outcome.value
    return {**row, **_verdict_row(attempt.report, attempt.facts)}


def attempt_of(row: Row) -> Attempt:
    """Return the attempt of a row.

    Raises:
        ValueError: Its outcome is unknown, or its fact report is no JSON of one.
    """
    report, facts = _verdicts_of(row)
    row["parent_ids"] = tuple(row["parent_ids"])
    row["outcome"] = Outcome(row["outcome"])
    return Attempt(report=report, facts=facts, **row)


def summary_schema() -> ArrowSchema:
    """Return the columns of summaries.parquet."""
    import pyarrow as pa

    return pa.schema(
        [
            ("summary_id", pa.string()),
            ("cluster_id", pa.string()),
            ("session_id", pa.string()),
            ("text", pa.string()),
            ("status", pa.string()),
            ("method", pa.string()),
            ("source_ids", pa.list_(pa.string())),
            ("source_positions", pa.list_(pa.int64())),
            ("first_us", pa.int64()),
            ("last_us", pa.int64()),
            ("source_tokens", pa.int64()),
            ("summary_tokens", pa.int64()),
            ("reason", pa.string()),
            ("user", pa.string()),
            ("wing", pa.string()),
            ("parent_ids", pa.list_(pa.string())),
            ("fallback", pa.string()),
            *_verdict_columns(),
        ]
    )


def attempt_schema() -> ArrowSchema:
    """Return the columns of attempts.parquet."""
    import pyarrow as pa

    return pa.schema(
        [
            ("cluster_id", pa.string()),
            ("place", pa.int64()),
            ("method", pa.string()),
            ("text", pa.string()),
            ("source_tokens", pa.int64()),
            ("summary_tokens", pa.int64()),
            ("outcome", pa.string()),
            ("reason", pa.string()),
            ("parent_ids", pa.list_(pa.string())),
            *_verdict_columns(),
        ]
    )


def _verdict_columns() -> list[tuple[str, Any]]:
    import pyarrow as pa

    return [
        ("gate_align", pa.float64()),
        ("gate_cover", pa.float64()),
        ("gate_confidence", pa.float64()),
        ("gate_decay_rate", pa.float64()),
        ("gate_threshold", pa.float64()),
        ("gate_passed", pa.bool_()),
        ("gate_reasons", pa.list_(pa.string())),
        ("facts", pa.string()),
    ]


def _verdict_row(report: GateReport | None, facts: FactReport | None) -> Row:
    row: Row = {
        _GATE_PREFIX + name: None if report is None else getattr(report, name)
        for name in GateReport.__slots__
    }
    row["facts"] = None if facts is None else facts.to_json()
    return row


def _verdicts_of(row: Row) -> tuple[GateReport | None, FactReport | None]:
    """Take the columns of both verdicts out of a row."""
    gate = {name: row.pop(_GATE_PREFIX + name) for name in GateReport.__slots__}
    facts = row.pop("facts")
    report = None
    if gate["passed"] is not None:
        gate["reasons"] = tuple(gate["reasons"])
        report = GateReport(**gate)
    return report, None if facts is None else FactReport.from_json(facts)


# Rows of a `.npy` matrix by position, read instead of mapped.
#
# A map of the whole file counts as resident memory page by page: a million vectors of 384
# dimensions would be 1.5 GB of it.


class VectorRows:
    """An open matrix of shape (n, d).

    Attributes:
        shape: (n, d).
        dtype: Of its components.
    """

    def __init__(self, path: Path) -> None:
        """Open a matrix and read its header.

        Raises:
            StoreError: The file is missing, or it is no row-major matrix.
        """
        try:
            # The header only; the map is dropped before a row is touched.
            header = np.load(path, mmap_mode="r", allow_pickle=False)
        except (OSError, ValueError) as error:
            raise StoreError(
                f"{path} is not a readable array ({error}); run the night again to rebuild it"
            ) from error
        if header.ndim != 2 or not header.flags.c_contiguous:
            raise StoreError(
                f"{path} holds an array of shape {header.shape}, expected rows of vectors; "
                "run the night again to rebuild it"
            )
        self.shape: tuple[int, int] = header.shape
        self.dtype: np.dtype[Any] = header.dtype
        self._first_byte = int(header.offset)
        self._row_bytes = header.shape[1] * header.dtype.itemsize
        self._handle = os.open(path, os.O_RDONLY)

    def take(self, positions: Sequence[int]) -> NDArray[Any]:
        """Return the rows at some positions, shape (len(positions), d), in the given order.

        Raises:
            IndexError: A position is not in [0, n).
            StoreError: The file is shorter than its header says.
        """
        rows = np.empty((len(positions), self.shape[1]), dtype=self.dtype)
        start = 0
        while start < len(positions):
            end = start + 1
            while end < len(positions) and positions[end] == positions[end - 1] + 1:
                end += 1
            self._fill(rows[start:end], positions[start])
            start = end
        return rows

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: slice) -> NDArray[Any]:
        """Return consecutive rows, as a matrix in memory would."""
        start, stop, step = rows.indices(self.shape[0])
        found = np.empty((max(stop - start, 0), self.shape[1]), dtype=self.dtype)
        if len(found):
            self._fill(found, start)
        return found[::step]

    def close(self) -> None:
        """Close the file."""
        os.close(self._handle)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _fill(self, rows: NDArray[Any], first: int) -> None:
        """Read consecutive rows in one go."""
        if first < 0 or first + len(rows) > self.shape[0]:
            raise IndexError(f"row {first + len(rows) - 1} of a matrix of {self.shape[0]} rows")
        wanted = len(rows) * self._row_bytes
        data = os.pread(self._handle, wanted, self._first_byte + first * self._row_bytes)
        if len(data) != wanted:
            raise StoreError(
                f"the vectors end after {len(data)} of {wanted} bytes at row {first}: the file is "
                "cut short; run the night again to rebuild it"
            )
        rows.reshape(-1)[:] = np.frombuffer(data, dtype=self.dtype)


# Sessions and cluster texts from the files of a corpus, in bounded memory.
#
# DuckDB sorts and spills beside the tables; what Python holds is one session's turns without their
# texts, or one batch of clusters with them.


MEMORY_LIMIT = "512MB"
"""What DuckDB may hold before it spills. Larger sorts more turns without touching the disk; the
night around it has its own tables in memory."""

ROWS_PER_READ = 8_192
"""Rows handed over at once."""

BATCH_CLUSTERS = 256
"""Clusters summarised together. Larger fills the encoder better, smaller bounds memory: one batch
holds the texts and the vectors of about 256 * 20 turns."""

BATCH_CHARS = 4_000_000
"""A batch also ends where its texts reach this many characters: long turns bound it before the
number of clusters does."""

_SESSIONS = """
    SELECT t.position, t.memory_id, m.content_hash, t.created_at_us, t.session_id, t."user",
           m.wing, t.speaker, m.asks, m.chars
    FROM read_parquet($turns) AS t
    JOIN (
        SELECT position, content_hash, wing, length(content) AS chars,
               contains($marks, right(rtrim(content, $closing), 1))
                   AND rtrim(content, $closing) <> '' AS asks
        FROM read_parquet($memories)
        WHERE is_turn
    ) AS m ON m.position = t.position
    ORDER BY t.session_id, t."user" NULLS FIRST, t.ordinal
"""

_TEXTS = """
    SELECT m.content
    FROM wanted AS w
    JOIN read_parquet($memories) AS m ON m.position = w.position
    ORDER BY w.place
"""


@dataclass(frozen=True, slots=True)
class ClusterSources:
    """The files that cluster texts are read from.

    Attributes:
        clusters: The cluster table.
        memories: The export's memories.parquet, in order of position.
        vectors: Document vectors by position, `.npy`, shape (n, d).
    """

    clusters: Path
    memories: Path
    vectors: Path


def iter_sessions(turns: Path, memories: Path) -> Iterator[list[SessionTurn]]:
    """Yield the turns of every session and user, chronological by (created_at_us, position).

    Sessions come by session id, then user, nobody's first. One session is in memory at a time: with
    one of a million turns the process takes 1 GB.

    Args:
        turns: The export's turns.parquet.
        memories: Its memories.parquet.
    """
    rows = _session_turns(turns, memories)
    for _, session in groupby(rows, key=lambda turn: (turn.session_id, turn.user)):
        yield list(session)


def count_later(turns: Path, now_us: int) -> int:
    """Return how many turns are dated after a moment, from one column of turns.parquet."""
    import polars as pl

    later = pl.scan_parquet(turns).filter(pl.col("created_at_us") > now_us)
    return later.select(pl.len()).collect().item()


def iter_cluster_texts(
    sources: ClusterSources, *, skip: Container[str] = frozenset()
) -> Iterator[list[ClusterText]]:
    """Yield all clusters of a table in its order, with what their members say and where they point.

    A batch ends at BATCH_CLUSTERS clusters or BATCH_CHARS characters.

    Args:
        sources: Where to read.
        skip: Ids of clusters whose texts are not needed; they come without contents and vectors.
    """
    wanted = _wanted_positions(iter_clusters(sources.clusters), skip)
    texts = _texts(sources.memories, wanted)
    with VectorRows(sources.vectors) as vectors:
        batch: list[ClusterText] = []
        chars = 0
        for cluster in iter_clusters(sources.clusters):
            members = () if cluster.cluster_id in skip else cluster.member_positions
            contents = [next(texts) for _ in members]
            chars += sum(map(len, contents))
            batch.append(ClusterText(cluster, contents, vectors.take(members)))
            if len(batch) >= BATCH_CLUSTERS or chars >= BATCH_CHARS:
                yield batch
                batch, chars = [], 0
        if batch:
            yield batch


def _session_turns(turns: Path, memories: Path) -> Iterator[SessionTurn]:
    names = _Shared()
    parameters = {
        "turns": str(turns),
        "memories": str(memories),
        "marks": QUESTION_MARKS,
        "closing": CLOSING_CHARS,
    }
    with open_duckdb(turns.parent) as db:
        db.execute(f"SET memory_limit = '{MEMORY_LIMIT}'")
        reader = db.sql(_SESSIONS, params=parameters).to_arrow_reader(ROWS_PER_READ)
        for rows in reader:
            columns = [rows.column(i).to_pylist() for i in range(rows.num_columns)]
            for i in _REPEATING:
                columns[i] = list(map(names.of, columns[i]))
            yield from map(SessionTurn._make, zip(*columns, strict=True))


_REPEATING = tuple(map(SessionTurn._fields.index, ("session_id", "user", "wing", "speaker")))


@dataclass(slots=True)
class _Shared:
    """Equal strings as one object: sessions, users and speakers repeat with every turn."""

    _known: dict[str | None, str | None] = field(default_factory=dict[str | None, str | None])

    def of(self, value: str | None) -> str | None:
        return self._known.setdefault(value, value)


def _wanted_positions(clusters: Iterable[Cluster], skip: Container[str]) -> NDArray[np.int64]:
    """Return the members of all clusters that are not skipped, in order: 8 bytes per turn."""
    parts = [
        np.asarray(cluster.member_positions, dtype=np.int64)
        for cluster in clusters
        if cluster.cluster_id not in skip
    ]
    return np.concatenate(parts) if parts else np.empty(0, dtype=np.int64)


def _texts(memories: Path, wanted: NDArray[np.int64]) -> Iterator[str]:
    """Yield the contents at some positions, in the order of `wanted`."""
    if not len(wanted):
        return
    import pyarrow as pa

    places = pa.table({"place": np.arange(len(wanted)), "position": wanted})
    with open_duckdb(memories.parent) as db:
        db.execute(f"SET memory_limit = '{MEMORY_LIMIT}'")
        db.register("wanted", places)
        reader = db.sql(_TEXTS, params={"memories": str(memories)}).to_arrow_reader(ROWS_PER_READ)
        for rows in reader:
            yield from rows.column(0).to_pylist()


# From clusters to judged summaries, batch by batch, with those of earlier nights used again.
#
# Raw turns are only read.


RECIPE_VERSION = "2"
# Raised when the same turns would be summarised to other text or other numbers, so that old ones
# are not re-used.


class Settled(NamedTuple):
    """What became of a cluster.

    Attributes:
        summary: Of a value of the content store without positions: rows move when an earlier one
            comes or goes.
        attempts: Its rejected candidates.
        vectors: float32 (d,) of the texts that were embedded for it by another process, by text.
    """

    summary: Summary
    attempts: tuple[Attempt, ...]
    vectors: Mapping[str, NDArray[np.float32]]


Lookup = Callable[[Sequence[bytes]], Mapping[bytes, Settled]]
"""What is known of some clusters, by `result_key`."""


def know_nothing(keys: Sequence[bytes]) -> Mapping[bytes, Settled]:
    """Know no cluster's summary."""
    del keys
    return {}


class BatchResult(NamedTuple):
    """What a batch came to.

    Attributes:
        summaries: One per cluster, in the order of the batch.
        attempts: Every rejected candidate of these clusters, those of earlier nights included, in
            the order of the batch.
        made: Clusters that were summarised tonight; the others were used again.
        keys: Of every cluster, see `result_key`.
        fresh: What was made and is worth keeping, by key: a summarizer that gave no answer may
            give one another night (`TRIED_AGAIN`).
    """

    summaries: list[Summary]
    attempts: list[Attempt]
    made: int
    keys: Sequence[bytes] = ()
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
            settings.to_json(),
            [summarizer.name, dict(summarizer.recipe)],
            dict(EXTRACTIVE.recipe),
        ]
    )


def summarize_batch(
    batch: Sequence[ClusterText],
    encode: Encode,
    *,
    summarizer: Summarizer = EXTRACTIVE,
    known: Lookup = know_nothing,
    settings: SummarySettings = DEFAULT_SETTINGS,
    context: SessionContext | None = None,
) -> BatchResult:
    """Summarise every cluster of a batch and judge every candidate.

    A cluster that is known is used again: its key tells its turns and the earlier summaries that
    its summarizer is shown.

    Args:
        batch: Clusters; those of one session oldest first. How clusters are cut into batches does
            not change the result.
        encode: Vectors of the given texts, shape (m, d), from the encoder of the batch's vectors.
        summarizer: Who writes; where its drafts fail the extractive one follows.
        known: What earlier nights made with the same `recipe_digest`.
        settings: Densities and threshold.
        context: Carries sessions over from batch to batch; needed where `summarizer.uses_context`
            and a session may be longer than a batch.

    Raises:
        ValueError: The encoder returned another number of vectors than it was given texts, or a
            cluster's contents and vectors differ in number.
    """
    kept = SessionContext() if context is None else context
    keys: dict[int, bytes] = {}
    settled: dict[int, Settled] = {}
    made: list[int] = []
    for wave in _waves(batch, summarizer.uses_context):
        parents = {
            place: kept.before(batch[place].cluster) if summarizer.uses_context else ()
            for place in wave
        }
        keys |= {place: result_key(batch[place].cluster, parents[place]) for place in wave}
        held = known([keys[place] for place in wave])
        fresh: list[int] = []
        for place in wave:
            cluster = batch[place].cluster
            if (again := held.get(keys[place])) is not None:
                settled[place] = again._replace(summary=_rebind(again.summary, cluster))
            elif cluster.trivial:
                settled[place] = Settled(_trivial(batch[place]), (), {})
                made.append(place)
            else:
                fresh.append(place)
        trials = escalate(
            [_request(batch[place], parents[place]) for place in fresh],
            encode,
            summarizer=summarizer,
            settings=settings,
            parent_ids=[tuple(e.summary_id for e in parents[place]) for place in fresh],
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


def result_key(cluster: Cluster, parents: Sequence[Earlier] = ()) -> bytes:
    """Return the key of a cluster's summary: its id tells its members and what they say.

    Args:
        cluster: The cluster.
        parents: Earlier summaries that its summarizer is shown.
    """
    shown = () if cluster.trivial else parents
    return bytes.fromhex(hash_text(cluster.cluster_id, *(p.summary_id for p in shown)))


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
    """Give a re-used summary today's positions: rows move when an earlier one comes or goes."""
    return replace(
        summary,
        source_positions=cluster.member_positions,
        source_ids=cluster.member_ids,
        first_us=cluster.first_us,
        last_us=cluster.last_us,
        user=cluster.user,
        wing=cluster.wing,
    )


def _request(item: ClusterText, parents: Sequence[Earlier]) -> Request:
    return Request(
        cluster_id=item.cluster.cluster_id,
        texts=item.contents,
        vectors=item.vectors,
        user=item.cluster.user,
        context=tuple(earlier.text for earlier in parents),
    )


def _summary_of(cluster: Cluster, trial: Trial) -> Summary:
    """Return the summary of a settled cluster: what was taken, or the last one that was judged."""
    last = trial.last
    if not trial.taken and trial.attempts[-1].outcome is Outcome.SECRET:
        last = None
    return _summary(
        cluster,
        text=last.draft.text if last else "",
        status="accepted" if trial.taken else "declined",
        method=last.draft.method if last else METHOD_NONE,
        tokens=(trial.source_tokens, last.tokens if last else 0),
        reason="" if trial.taken else trial.attempts[-1].reason,
        trial=trial,
    )


def _trivial(item: ClusterText) -> Summary:
    tokens = source_tokens(item.contents)
    return _summary(
        item.cluster,
        text=item.contents[0],
        status="trivial",
        method=METHOD_TRIVIAL,
        tokens=(tokens, tokens),
        reason="one turn: it stands for itself",
    )


def _summary(
    cluster: Cluster,
    *,
    text: str,
    status: Status,
    method: str,
    tokens: tuple[int, int],
    reason: str,
    trial: Trial | None = None,
) -> Summary:
    judged = trial.last if trial is not None and text else None
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
        report=judged.report if judged else None,
        reason=reason,
        user=cluster.user,
        wing=cluster.wing,
        parent_ids=trial.parent_ids if trial and judged and not judged.draft.kept else (),
        facts=judged.facts if judged else None,
        fallback=trial.fallback if trial is not None else "",
    )


# Summarising clusters as a task over record batches, and reading what it left.
#
# Only for summarizers that need nothing but the cluster: what depends on earlier summaries of a
# session, on a service or on a large model goes the way of `summarize_batch`.


SHARD_CLUSTERS = 256
"""Clusters of a shard (9 MB of texts and vectors). More need more memory in every worker and lose
more work to a kill (4 s), fewer make more files."""

_ROW_MS = 13.0
"""A cluster of 16 turns of 200 characters, its embedding by one layer included."""

_POSITIONS = "source_positions"
_TASK = "summaries"


@dataclass(frozen=True, slots=True)
class SummarizeClusters:
    """Gives the judged summary of every cluster; see `BatchTask`.

    Attributes:
        summarizer: One that does not use context.
        settings: Densities and threshold.
        export: The ONNX export that made the members' vectors; opened where a text needs one.
    """

    summarizer: Summarizer
    settings: SummarySettings
    export: Path

    @property
    def name(self) -> str:
        """See `BatchTask`."""
        return _TASK

    @property
    def row_ms(self) -> float:
        """See `BatchTask`."""
        return _ROW_MS

    def open(self, threads: int) -> BatchFunction:
        """Return the function from `cluster_rows` to `key` and `value`; see `BatchTask`."""
        return _Summarizing(self, threads)


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


def read_settled(value: bytes) -> Settled:
    """Return what `write_settled` wrote."""
    told = json.loads(value)
    summary = summary_of({**told["summary"], _POSITIONS: []})
    attempts = tuple(attempt_of(row) for row in told["attempts"])
    vectors = {
        text: np.frombuffer(base64.b64decode(data), dtype="<f4")
        for text, data in told["vectors"].items()
    }
    return Settled(summary, attempts, vectors)


def write_settled(settled: Settled) -> bytes:
    """Return what became of a cluster as a value of the content store."""
    row: dict[str, Any] = summary_row(settled.summary)
    del row[_POSITIONS]
    vectors = {
        text: base64.b64encode(vector.astype("<f4").tobytes()).decode("ascii")
        for text, vector in sorted(settled.vectors.items())
    }
    attempts = list(map(attempt_row, settled.attempts))
    return json.dumps({"summary": row, "attempts": attempts, "vectors": vectors}).encode("ascii")


class _Summarizing:
    """The task's function; the encoder is opened by the first text that needs it."""

    def __init__(self, task: SummarizeClusters, threads: int) -> None:
        self._task = task
        self._threads = threads
        self._encoder: OnnxEncoder | None = None

    def __call__(self, rows: RecordBatch) -> RecordBatch:
        import pyarrow as pa

        embedded: dict[str, NDArray[np.float32]] = {}

        def encode(texts: list[str]) -> NDArray[np.float32]:
            vectors = self._opened().encode_documents(texts)
            embedded.update(zip(texts, vectors, strict=True))
            return vectors

        task = self._task
        result = summarize_batch(
            _cluster_texts(rows), encode, summarizer=task.summarizer, settings=task.settings
        )
        values = [write_settled(_with_vectors(result.fresh[k], embedded)) for k in result.keys]
        return pa.record_batch([rows.column(KEY), pa.array(values, pa.binary())], [KEY, VALUE])

    def _opened(self) -> OnnxEncoder:
        if self._encoder is None:
            self._encoder = OnnxEncoder.open(self._task.export, self._threads)
        return self._encoder


def _cluster_texts(rows: RecordBatch) -> list[ClusterText]:
    found: list[ClusterText] = []
    columns = [rows.column(name).to_pylist() for name in ("cluster", "texts", "vectors")]
    for told, texts, data in zip(*columns, strict=True):
        vectors = np.frombuffer(data, dtype="<f4").reshape(len(texts), -1)
        found.append(ClusterText(_cluster_of(told), texts, vectors))
    return found


def _cluster_json(cluster: Cluster) -> str:
    row = {name: getattr(cluster, name) for name in Cluster.__slots__}
    # Left out, so that equal clusters are equal rows wherever they stand in the store tonight.
    return json.dumps({**row, "member_positions": []})


def _cluster_of(told: str) -> Cluster:
    cluster = Cluster(**json.loads(told))
    return replace(cluster, member_ids=tuple(cluster.member_ids), member_positions=())


def _with_vectors(settled: Settled, embedded: Mapping[str, NDArray[np.float32]]) -> Settled:
    texts = {settled.summary.text, *(attempt.text for attempt in settled.attempts)}
    return settled._replace(vectors={text: embedded[text] for text in texts & embedded.keys()})


# Summaries of all clusters of a table: what is known is used again, what is new is made.


_SELF_CONTAINED = (ExtractiveSummarizer, SentenceSummarizer)
"""Summarizers that read nothing but their cluster and load no model."""

Embed = Callable[[list[str]], Embedded]
"""Gives the vectors of texts, encoded as documents, and how many of them were new."""


class Summarized(NamedTuple):
    """What was new: clusters that were summarised, and texts that were embedded for it."""

    made: int
    embedded: int


def summary_kind(recipe: str) -> str:
    """Return the kind of what became of clusters by a recipe (`recipe_digest`)."""
    return f"summaries:{recipe}"


def task_of(
    summarizer: Summarizer, settings: SummarySettings, export: Path | None
) -> SummarizeClusters | None:
    """Return the task that a runner can summarise by; None where it must be done here.

    Args:
        summarizer: Who writes.
        settings: Densities and threshold.
        export: The ONNX export that made the members' vectors; None if something else did.
    """
    if export is None or not isinstance(summarizer, _SELF_CONTAINED):
        return None
    return SummarizeClusters(summarizer, settings, export)


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
        vectors: Of the texts' `vector_kind`.
        embed: Keeps vectors there too.
        take: Given every batch, in the order of the table.
        summarizer: Who writes.
        settings: Densities and threshold.
        export: See `task_of`.
        runner: Who runs the task.
        shards: For the shards' files, removed at the end.
        progress: Told of clusters done.

    Raises:
        ShardError: The task failed; what was made is kept.
        EncoderError: The export is absent or damaged, or `embed` fails.
    """
    count, done, made, embedded = count_rows(sources.clusters), 0, 0, 0
    task = task_of(summarizer, settings, export)
    if task is not None:
        settled = _settled_ids(results, sources)
        before = {fragment.key for fragment in results.fragments}
        total = max(count - len(settled), 0)
        rows = _new_rows(sources, settled)
        filled = fill(
            results, rows, task, runner, shards, progress, total=total, shard_rows=SHARD_CLUSTERS
        )
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
        if task is None:
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
