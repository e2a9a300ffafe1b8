"""A small store made by the project's own code: records by hand, the rest as a night makes it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from noctuary.compact.clusters import Cluster, ClusterText
from noctuary.compact.summaries import Summary, summarize_batch
from noctuary.core.manifest import read_manifest
from noctuary.core.store import StorePaths, record_night
from noctuary.core.types import MemoryRecord, content_hash, corpus_digest
from noctuary.embed.lean import LeanEncoder
from noctuary.graph.build import to_arrays
from noctuary.graph.tables import GraphTables
from noctuary.lexical.build import build_postings
from noctuary.snapshot.checks import DropReport, GateContext, judge_candidate
from noctuary.snapshot.pack import PackInputs, Provenance, build_candidate
from noctuary.snapshot.publish import publish_candidate, store_verdict
from noctuary.sources.source import Share
from noctuary.text.tokens import encode_tokens, index_tokens
from tests.support.graphs import graph_tables
from tests.support.turns import cluster_turns

DAY_US = 86_400_000_000
FIRST_DAY_US = 1_767_225_600_000_000
"""2026-01-01T00:00:00Z."""


def day_us(day: int) -> int:
    """Return midnight UTC of the day-th day of 2026, counted from 1."""
    return FIRST_DAY_US + (day - 1) * DAY_US


def memory(content: str, **fields: Any) -> MemoryRecord:
    """Return a record; `renumber` gives it its place. The hash covers what is given here."""
    values: dict[str, Any] = {
        "position": 0,
        "memory_id": "",
        "content": content,
        "category": "fact",
        "tags": "",
        "expanded_keywords": "",
        "importance": 0.5,
        "created_at_us": day_us(1),
        "updated_at_us": day_us(1),
        "session_id": None,
        "wing": None,
        "room": None,
        "user": None,
        "is_turn": False,
        "content_hash": "",
        **fields,
    }
    return MemoryRecord(**values)


def renumber(records: Sequence[MemoryRecord], first_id: int = 101) -> list[MemoryRecord]:
    """Return the records in order, with positions from 0, ids from `first_id` and their hashes."""
    numbered: list[MemoryRecord] = []
    for position, record in enumerate(records):
        memory_id = record.memory_id or str(first_id + position)
        placed = record._replace(position=position, memory_id=memory_id)
        numbered.append(placed._replace(content_hash=content_hash(placed)))
    return numbered


def turns(session: str, *texts: str, wing: str = "home", user: str | None = None) -> list[Any]:
    """Return the turns of a conversation, a minute apart, on day 20."""
    return [
        memory(
            text,
            category="turn",
            session_id=session,
            wing=wing,
            user=user,
            is_turn=True,
            created_at_us=day_us(20) + minute * 60_000_000,
        )
        for minute, text in enumerate(texts)
    ]


def household() -> list[MemoryRecord]:
    """Return one believable store.

    Two wings, two users, a linked pair, a conversation, an undated row. 14 memories, ids from 101.
    """
    return renumber(
        [
            memory(
                "The spare key hangs behind the blue door.",
                wing="home", room="hall", importance=0.9, created_at_us=day_us(2),
                tags="key, wing:home",
            ),
            memory(
                "The feline eats twice a day.",
                wing="home", room="kitchen", created_at_us=day_us(3),
            ),
            memory(
                "Atlas migration: take a backup before the schema change.",
                wing="work", room="atlas", category="decision", importance=0.8,
                created_at_us=day_us(4),
            ),
            memory(
                "Nina leads the Atlas migration and starts in May.",
                wing="work", room="team", created_at_us=day_us(5),
            ),
            memory(
                "The boiler needs a new valve before winter.", wing="home", created_at_us=day_us(6)
            ),
            memory(
                "Ana keeps her door code in the red notebook.", user="ana", created_at_us=day_us(7)
            ),
            memory("Ben keeps his door code in the car.", user="ben", created_at_us=day_us(8)),
            memory("A door without a date.", created_at_us=-(2**63), importance=0.1),
            *turns(
                "s1",
                "Ana: we need a flight to Lisbon in June.",
                "Bot: the morning flight is cheaper.",
                "Ana: then book the morning flight.",
                "Bot: the flight is booked for the ninth.",
                "Ana: put the invoice into the shared folder.",
                "Bot: done.",
            ),
        ]
    )  # fmt: skip


def pack_inputs(
    records: Sequence[MemoryRecord], encoder: LeanEncoder | None = None, **changes: Any
) -> PackInputs:
    """Return what a night would pack; without an encoder there are no vectors and no summaries."""
    graph = _graph_of(tuple(records))
    clusters = cluster_turns(records, target=4, protected_tail=2)
    vectors = None if encoder is None else encoder.encode_documents([r.content for r in records])
    summaries = [] if encoder is None else _summaries(records, clusters, encoder)
    inputs = PackInputs(
        records=records,
        vectors=vectors,
        postings=build_postings(
            encode_tokens(
                index_tokens(
                    r.content, r.tags, r.expanded_keywords, r.category, r.created_at_us, r.is_turn
                )
            )
            for r in records
        ),
        graph=graph,
        graph_arrays=to_arrays(graph, len(records)),
        clusters=clusters,
        summaries=summaries,
        summary_vectors=summary_vectors(encoder, summaries),
    )
    return replace(inputs, **changes)


@lru_cache(maxsize=256)
def _graph_of(records: tuple[MemoryRecord, ...]) -> GraphTables:
    """Return the tables of some memories' graph: most of the time of a publication."""
    return graph_tables(records)


def summary_vectors(
    encoder: LeanEncoder | None, summaries: Sequence[Summary]
) -> NDArray[np.float32] | None:
    """Return what a night would pack beside the summaries."""
    if encoder is None:
        return None
    if not summaries:
        return np.empty((0, encoder.fingerprint.dimension), dtype=np.float32)
    return encoder.encode_documents([s.text for s in summaries])


def _summaries(
    records: Sequence[MemoryRecord], clusters: Sequence[Cluster], encoder: LeanEncoder
) -> list[Summary]:
    def text_of(cluster: Cluster) -> ClusterText:
        contents = [records[p].content for p in cluster.member_positions]
        return ClusterText(cluster, contents, encoder.encode_documents(contents))

    batch = [text_of(cluster) for cluster in clusters]
    made = summarize_batch(batch, encoder.encode_documents)
    return [summary for summary in made if summary.status == "accepted"]


def provenance(encoder: LeanEncoder | None = None, **changes: Any) -> Provenance:
    """Return a provenance with integer ids and a source that exists on every machine."""
    known = Provenance(
        id_kind="int",
        encoder=None if encoder is None else encoder.fingerprint.to_json(),
        encoder_digest=None if encoder is None else encoder.fingerprint.digest,
        source={"kind": "jsonl", "schema_version": 1, "location": str(Path(__file__).resolve())},
        corpus_digest="c0",
        settings={},
    )
    return replace(known, **changes)


def gate_context(
    directory: Path, encoder: LeanEncoder | None = None, **changes: Any
) -> GateContext:
    """Return what an honest night would tell the gate about this candidate."""
    count = read_manifest(directory).counts["memories"]
    tiers = {} if encoder is None else {"full": count}

    def encode(texts: Sequence[str]) -> NDArray[np.float32]:
        assert encoder is not None
        return encoder.encode_documents(texts)

    context = GateContext(
        source_counts={
            "source_rows": count + 3,
            "exported": count,
            "quarantined": 2,
            "sensitive": 1,
        },
        tier_rows=tiers,
        tier_faults=dict.fromkeys(tiers, 0),
        index_gaps=dict.fromkeys(tiers, 0),
        encoder_digest=None if encoder is None else encoder.fingerprint.digest,
        preserve_threshold=0.65,
        encode=encode,
        drops=DropReport(note="nothing serves yet"),
    )
    return replace(context, **changes)


@dataclass(frozen=True)
class Store:
    """A store directory and the way to publish into it."""

    paths: StorePaths
    encoder: LeanEncoder | None = None
    keep: int = 7
    _published: list[str] = field(default_factory=list[str])

    @property
    def root(self) -> Path:
        """The store directory."""
        return self.paths.root

    def candidate(
        self, records: Sequence[MemoryRecord], *, shares: Sequence[Share] = (), **changes: Any
    ) -> Path:
        """Build a candidate; its directory."""
        inputs = pack_inputs(records, self.encoder, shares=shares)
        return build_candidate(
            self.paths,
            inputs,
            provenance(
                self.encoder,
                corpus_digest=corpus_digest(r.content_hash for r in records),
                **changes,
            ),
        )

    def judge(self, candidate: Path) -> str:
        """Let the gate judge a candidate and store its verdict; the digest it is stored under."""
        digest = read_manifest(candidate).digest
        checks = judge_candidate(candidate, gate_context(candidate, self.encoder))
        store_verdict(self.paths, digest, checks)
        return digest

    def publish(self, records: Sequence[MemoryRecord], **changes: Any) -> str:
        """Build, judge and publish, as a night that goes through; the snapshot's id."""
        digest = self.judge(self.candidate(records, **changes))
        published = publish_candidate(self.paths, digest, self.keep)
        record_night(self.paths)
        return published.snapshot_id

    def snapshot(self, snapshot_id: str) -> Path:
        """The directory of a published snapshot."""
        return self.paths.snapshots / snapshot_id


def new_store(root: Path, *, keep: int = 7, encoder: LeanEncoder | None = None) -> Store:
    """Return an empty store as the night would leave it before its first publication."""
    paths = StorePaths(root)
    paths.work.mkdir(parents=True)
    return Store(paths, encoder, keep)
