"""Summarising clusters as a task over record batches, and reading what it left.

What belongs here: the task, its rows, its values. What does not: how a cluster is summarised
(`summaries`), who runs the task (noctuary.shards), the tables that results end in (`tables`).

Only for summarizers that need nothing but the cluster: what depends on earlier summaries of a
session, on a service or on a large model goes the way of `summarize_batch`.
"""

from __future__ import annotations

import base64
import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from noctuary.compact.attempts import Attempt
from noctuary.compact.cluster_text import ClusterText
from noctuary.compact.clusters import Cluster
from noctuary.compact.escalation import SummarySettings
from noctuary.compact.summaries import summarize_batch
from noctuary.compact.summarizers.base import Summarizer
from noctuary.compact.summary import Summary
from noctuary.compact.table_rows import attempt_of, attempt_row, summary_of, summary_row
from noctuary.encode.onnx_encoder import OnnxEncoder
from noctuary.hashing import hash_text
from noctuary.shards.fragment_store import KEY, VALUE
from noctuary.shards.keys import KEY_BYTES
from noctuary.shards.task import BatchFunction, RecordBatch

SHARD_CLUSTERS = 256
"""Clusters of a shard (9 MB of texts and vectors). More need more memory in every worker and lose
more work to a kill (4 s), fewer make more files."""

_ROW_MS = 13.0
"""A cluster of 16 turns of 200 characters, its embedding by one layer included."""

_POSITIONS = "source_positions"


class Settled(NamedTuple):
    """What became of a cluster.

    Attributes:
        summary: Without positions: rows move when an earlier one comes or goes.
        attempts: Its rejected candidates.
        vectors: float32 little-endian bytes of the texts that were embedded for it, by text.
    """

    summary: Summary
    attempts: tuple[Attempt, ...]
    vectors: Mapping[str, bytes]


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
        return "summaries"

    @property
    def row_ms(self) -> float:
        """See `BatchTask`."""
        return _ROW_MS

    def open(self, threads: int) -> BatchFunction:
        """Return the function from `cluster_rows` to `key` and `value`; see `BatchTask`."""
        return _Summarizing(self, threads)


def cluster_key(cluster: Cluster) -> bytes:
    """Return the key of a cluster's summary: its id tells its members and what they say."""
    return bytes.fromhex(hash_text(cluster.cluster_id))


def cluster_rows(batch: Sequence[ClusterText]) -> RecordBatch:
    """Return the rows that the task reads: key, cluster, texts, vectors (float32, row-major)."""
    import pyarrow as pa

    vectors = [np.asarray(item.vectors, dtype="<f4").tobytes() for item in batch]
    columns = {
        KEY: pa.array([cluster_key(item.cluster) for item in batch], pa.binary(KEY_BYTES)),
        "cluster": pa.array([_cluster_json(item.cluster) for item in batch], pa.string()),
        "texts": pa.array([list(item.contents) for item in batch], pa.list_(pa.string())),
        "vectors": pa.array(vectors, pa.binary()),
    }
    return pa.record_batch(list(columns.values()), names=list(columns))


def read_settled(value: bytes) -> Settled:
    """Return what a value of the task says."""
    told = json.loads(value)
    summary = summary_of({**told["summary"], _POSITIONS: []})
    attempts = tuple(attempt_of(row) for row in told["attempts"])
    vectors = {text: base64.b64decode(data) for text, data in told["vectors"].items()}
    return Settled(summary, attempts, vectors)


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
        attempts: dict[str, list[Attempt]] = defaultdict(list)
        for attempt in result.attempts:
            attempts[attempt.cluster_id].append(attempt)
        values = [_value_of(s, attempts[s.cluster_id], embedded) for s in result.summaries]
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


def _value_of(
    summary: Summary, attempts: Iterable[Attempt], embedded: Mapping[str, NDArray[np.float32]]
) -> bytes:
    row: dict[str, Any] = summary_row(summary)
    del row[_POSITIONS]
    tried = list(attempts)
    texts = sorted({summary.text, *(attempt.text for attempt in tried)} & embedded.keys())
    vectors = {
        text: base64.b64encode(embedded[text].astype("<f4").tobytes()).decode("ascii")
        for text in texts
    }
    told = {"summary": row, "attempts": list(map(attempt_row, tried)), "vectors": vectors}
    return json.dumps(told).encode("ascii")
