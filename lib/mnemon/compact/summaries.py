"""From clusters to judged summaries.

What belongs here: the Summary noun and the loop that drafts, encodes, judges and re-uses. What does
not: how a draft is cut (extractive), how it is judged (gate), how it is stored (tables). Raw turns
are only read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from mnemon.compact.clusters import CLUSTER_ID_HEX_CHARS, Cluster
from mnemon.compact.extractive import (
    AGGRESSIVE_DENSITY,
    PRIMARY_DENSITY,
    Extract,
    extract,
    source_tokens,
)
from mnemon.compact.gate import TAU_PRESERVE, GateReport, judge
from mnemon.hashing import hash_json, hash_text
from mnemon.progress import SILENT, Progress

Status = Literal["accepted", "declined", "trivial"]
Encode = Callable[[list[str]], NDArray[np.floating[Any]]]
ContentsOf = Callable[[Sequence[int]], Sequence[str]]
VectorsOf = Callable[[Sequence[int]], NDArray[np.floating[Any]]]

METHOD_TRIVIAL = "trivial"
METHOD_NONE = "none"
RECIPE_VERSION = "1"
# Raised when the same turns would be summarised to other text or other numbers, so that old ones
# are not re-used.

BATCH_CLUSTERS = 256
# Drafts that are encoded in one call. Larger fills the encoder better, smaller bounds memory: one
# batch holds the text and the vectors of about 256 * 20 turns.


@dataclass(frozen=True, slots=True)
class SummarySettings:
    """What decides the text and the verdict of a summary.

    Attributes:
        density: Share of turns kept by the primary cut, in (0, 1].
        aggressive_density: Share kept where the primary cut is not smaller, in (0, 1].
        threshold: Least alignment of an accepted summary, in [-1, 1].
    """

    density: float = PRIMARY_DENSITY
    aggressive_density: float = AGGRESSIVE_DENSITY
    threshold: float = TAU_PRESERVE


DEFAULT_SETTINGS = SummarySettings()


@dataclass(frozen=True, slots=True)
class Summary:
    """One cluster's outcome; only an accepted one may reach a snapshot.

    Attributes:
        summary_id: 16 hex characters of cluster, method and text.
        cluster_id: The cluster it stands for.
        session_id: The session of the cluster.
        text: The summary; of a declined one the rejected candidate ("" where none was smaller); of
            a trivial one the turn itself.
        status: "accepted", "declined" or "trivial".
        method: How the text was made.
        source_ids: Memory ids of all turns it covers, chronological.
        source_positions: Their corpus positions.
        first_us: Time of the earliest source, not of the night that made the summary.
        last_us: Time of the latest source.
        source_tokens: Estimated tokens of the sources.
        summary_tokens: Estimated tokens of `text`, by the same estimator.
        report: The gate's verdict; None where there was nothing to judge.
        reason: Why it is not accepted; "" where it is.
    """

    summary_id: str
    cluster_id: str
    session_id: str
    text: str
    status: Status
    method: str
    source_ids: tuple[str, ...]
    source_positions: tuple[int, ...]
    first_us: int
    last_us: int
    source_tokens: int
    summary_tokens: int
    report: GateReport | None
    reason: str


@dataclass(frozen=True, slots=True)
class _Draft:
    cluster: Cluster
    vectors: NDArray[np.floating[Any]]
    source_tokens: int
    extract: Extract


def recipe_digest(fingerprint_digest: str, settings: SummarySettings = DEFAULT_SETTINGS) -> str:
    """Return what decides a summary beside its turns: encoder, settings, version of this code.

    Summaries stored under another digest must not be passed as `known`.
    """
    return hash_json([RECIPE_VERSION, fingerprint_digest, asdict(settings)])


def summarize_clusters(
    clusters: Sequence[Cluster],
    contents_of: ContentsOf,
    vectors_of: VectorsOf,
    encode: Encode,
    known: Mapping[str, Summary] | None = None,
    progress: Progress = SILENT,
    *,
    settings: SummarySettings = DEFAULT_SETTINGS,
) -> list[Summary]:
    """Summarise every cluster and judge every candidate: one Summary per cluster, same order.

    Args:
        clusters: What to summarise.
        contents_of: Texts of the given corpus positions, in that order.
        vectors_of: Document vectors of the given positions, shape (n, d), from the same encoder as
            `encode`.
        encode: Vectors of the given texts, shape (m, d), encoded as documents.
        known: Earlier summaries by cluster id, of the same `recipe_digest`; these clusters are not
            encoded again.
        progress: Told after each batch.
        settings: Densities and threshold.

    Raises:
        ValueError: A callback returned another number of rows than it was asked for.
    """
    known = known or {}
    fresh = [cluster for cluster in clusters if cluster.cluster_id not in known]
    made: dict[str, Summary] = {}
    for batch in _batches(fresh):
        for summary in _summarize_batch(batch, contents_of, vectors_of, encode, settings):
            made[summary.cluster_id] = summary
        progress.update("summaries", len(made), len(fresh))
    return [
        made[cluster.cluster_id]
        if cluster.cluster_id in made
        else _rebind(known[cluster.cluster_id], cluster)
        for cluster in clusters
    ]


def _batches(clusters: Sequence[Cluster]) -> Iterator[Sequence[Cluster]]:
    for start in range(0, len(clusters), BATCH_CLUSTERS):
        yield clusters[start : start + BATCH_CLUSTERS]


def _rebind(summary: Summary, cluster: Cluster) -> Summary:
    """Give a re-used summary today's positions: rows move when an earlier one comes or goes."""
    return replace(
        summary,
        source_positions=cluster.member_positions,
        source_ids=cluster.member_ids,
        first_us=cluster.first_us,
        last_us=cluster.last_us,
    )


def _summarize_batch(
    batch: Sequence[Cluster],
    contents_of: ContentsOf,
    vectors_of: VectorsOf,
    encode: Encode,
    settings: SummarySettings,
) -> list[Summary]:
    done: list[Summary] = []
    drafts: list[_Draft] = []
    for cluster in batch:
        contents = contents_of(cluster.member_positions)
        tokens = source_tokens(contents)
        if cluster.trivial:
            done.append(_trivial(cluster, contents[0], tokens))
            continue
        vectors = vectors_of(cluster.member_positions)
        cut = extract(
            contents,
            vectors,
            density=settings.density,
            aggressive_density=settings.aggressive_density,
        )
        if cut is None:
            done.append(_no_smaller(cluster, tokens))
        else:
            drafts.append(_Draft(cluster, vectors, tokens, cut))
    vectors_of_drafts = _draft_vectors(drafts, encode)
    done.extend(_judged(d, v, settings) for d, v in zip(drafts, vectors_of_drafts, strict=True))
    return done


def _draft_vectors(drafts: Sequence[_Draft], encode: Encode) -> list[NDArray[np.floating[Any]]]:
    """Return one vector per draft; a draft that is one turn verbatim already has its own."""
    mixed = [draft.extract.text for draft in drafts if len(draft.extract.kept) > 1]
    encoded = list(encode(mixed)) if mixed else []
    if len(encoded) != len(mixed):
        raise ValueError(f"the encoder returned {len(encoded)} vectors for {len(mixed)} summaries")
    rows = iter(encoded)
    result: list[NDArray[np.floating[Any]]] = []
    for draft in drafts:
        first, *others = draft.extract.kept
        result.append(next(rows) if others else draft.vectors[first])
    return result


def _judged(draft: _Draft, vector: NDArray[np.floating[Any]], settings: SummarySettings) -> Summary:
    report = judge(vector, draft.vectors, threshold=settings.threshold)
    return _summary(
        draft.cluster,
        text=draft.extract.text,
        status="accepted" if report.passed else "declined",
        method=draft.extract.method,
        tokens=(draft.source_tokens, draft.extract.summary_tokens),
        report=report,
        reason="; ".join(report.reasons),
    )


def _trivial(cluster: Cluster, content: str, tokens: int) -> Summary:
    return _summary(
        cluster,
        text=content,
        status="trivial",
        method=METHOD_TRIVIAL,
        tokens=(tokens, tokens),
        reason="one turn: it stands for itself",
    )


def _no_smaller(cluster: Cluster, tokens: int) -> Summary:
    return _summary(
        cluster,
        text="",
        status="declined",
        method=METHOD_NONE,
        tokens=(tokens, 0),
        reason=f"no cut was smaller than {tokens} tokens",
    )


def _summary(
    cluster: Cluster,
    *,
    text: str,
    status: Status,
    method: str,
    tokens: tuple[int, int],
    reason: str,
    report: GateReport | None = None,
) -> Summary:
    return Summary(
        summary_id=hash_text("summary", cluster.cluster_id, method, text)[:CLUSTER_ID_HEX_CHARS],
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
        report=report,
        reason=reason,
    )
