"""What is read from the files of a corpus is what the reference makes of the records in memory."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from noctuary.compact import clusters as streaming
from noctuary.compact.clusters import (
    Cluster,
    cluster_session,
    count_later,
    iter_sessions,
    write_clusters,
)
from noctuary.compact.summaries import ClusterSources, iter_cluster_texts
from noctuary.core.files import write_array
from noctuary.core.types import MemoryRecord
from noctuary.sources.corpus import MEMORIES_FILE, TURNS_FILE, read_records
from noctuary.sources.export import export_corpus
from noctuary.sources.source import open_source
from noctuary.text.marks import CLOSING_CHARS, QUESTION_MARKS
from tests.support.turns import cluster_turns, word_vectors

DAY = "2026-03-01"
NOW_US = 1_800_000_000_000_000


def export(folder: Path, lines: Sequence[dict[str, Any]]) -> list[MemoryRecord]:
    source = folder / "memories.jsonl"
    source.write_text("".join(json.dumps(line) + "\n" for line in lines))
    with closing(open_source(source)) as opened:
        export_corpus(opened, folder, now_us=NOW_US)
    return read_records(folder / MEMORIES_FILE)


def line(number: int, **fields: Any) -> dict[str, Any]:
    return {
        "id": number,
        "content": f"Ana: turn number {number}.",
        "category": "turn",
        "session_id": "s",
        "created_at": f"{DAY}T10:{number:02d}:00Z",
        **fields,
    }


def mixed_lines(count: int, seed: int) -> list[dict[str, Any]]:
    """Sessions, users, wings, speakers, dates and question marks by chance; some lines no turns."""
    drawn = random.Random(seed)
    contents = ("Ana: Why?", 'Bo: "Really?" ', "User: Do it.", "Assistant: Done.", "ja？", "x )\n")
    lines = [
        line(
            number,
            content=f"{drawn.choice(contents)}{' ' * drawn.randint(0, 3)}",
            session_id=drawn.choice(["s", "t", "ü", "S", "a longer name"]),
            user=drawn.choice([None, "ann", "Bo"]),
            wing=drawn.choice([None, "w", "v"]),
            category=drawn.choice(["turn", "turn", "turn", "fact"]),
            created_at=drawn.choice(
                [None, f"{DAY}T{drawn.randint(0, 23):02d}:00:00Z", "2199-01-01"]
            ),
        )
        for number in range(count)
    ]
    drawn.shuffle(lines)
    return lines


def from_files(folder: Path, target: int, tail: int) -> list[Cluster]:
    return [
        cluster
        for turns in iter_sessions(folder / TURNS_FILE, folder / MEMORIES_FILE)
        for cluster in cluster_session(turns, target, protected_tail=tail, now_us=NOW_US)[0]
    ]


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("tail", [0, 4])
def test_files_give_the_clusters_that_records_give(tmp_path: Path, seed: int, tail: int) -> None:
    records = export(tmp_path, mixed_lines(250, seed))
    expected = cluster_turns(records, target=6, protected_tail=tail, now_us=NOW_US)
    assert from_files(tmp_path, 6, tail) == expected
    assert expected


def test_the_two_ways_of_finding_a_question_agree(tmp_path: Path) -> None:
    ends = ["", "?", "?!", *CLOSING_CHARS, *QUESTION_MARKS]
    contents = [f"Ana: so{a}{b}" for a in ends for b in ends] + ["?", '")?', "…"]
    records = export(
        tmp_path, [line(i, content=c, created_at=None) for i, c in enumerate(contents)]
    )
    (session,) = iter_sessions(tmp_path / TURNS_FILE, tmp_path / MEMORIES_FILE)
    assert [t.asks for t in session] == [naive_asks(r.content) for r in records]
    assert [t.chars for t in session] == [len(r.content) for r in records]


def naive_asks(content: str) -> bool:
    for place in range(len(content) - 1, -1, -1):
        if content[place] not in CLOSING_CHARS:
            return content[place] in QUESTION_MARKS
    return False


def test_what_is_empty_blank_or_deleted_never_becomes_a_turn(tmp_path: Path) -> None:
    lines = [line(i) for i in range(5)]
    lines += [line(5, content=""), line(6, content=" \n\t"), line(7, deleted_at=f"{DAY}T00:00:00Z")]
    export(tmp_path, lines)
    (session,) = iter_sessions(tmp_path / TURNS_FILE, tmp_path / MEMORIES_FILE)
    assert [t.memory_id for t in session] == ["0", "1", "2", "3", "4"]


def test_turns_out_of_order_come_in_order_and_undated_ones_first(tmp_path: Path) -> None:
    lines = [
        line(0, created_at=f"{DAY}T12:00:00Z"),
        line(1, created_at=None),
        line(2, created_at=f"{DAY}T09:00:00Z"),
        line(3, created_at=f"{DAY}T09:00:00Z"),
        line(4, created_at=None),
    ]
    export(tmp_path, lines)
    (session,) = iter_sessions(tmp_path / TURNS_FILE, tmp_path / MEMORIES_FILE)
    assert [t.memory_id for t in session] == ["1", "4", "2", "3", "0"]


def test_equal_turns_of_one_session_are_each_a_member(tmp_path: Path) -> None:
    """A turn that was stored twice under two ids: both are sources, neither is dropped."""
    export(tmp_path, [line(i, content="Ana: the same", created_at=None) for i in range(6)])
    (cluster,) = from_files(tmp_path, 0, 0)
    assert cluster.member_ids == ("0", "1", "2", "3", "4", "5")


def test_turns_dated_after_a_moment_are_counted(tmp_path: Path) -> None:
    export(tmp_path, [line(0), line(1, created_at="2190-01-01"), line(2, created_at=None)])
    assert count_later(tmp_path / TURNS_FILE, NOW_US) == 1
    assert count_later(tmp_path / TURNS_FILE, 2 * NOW_US) == 1
    assert count_later(tmp_path / TURNS_FILE, 10 * NOW_US) == 0


def test_a_store_without_turns_has_no_sessions(tmp_path: Path) -> None:
    export(tmp_path, [line(0, category="fact")])
    assert list(iter_sessions(tmp_path / TURNS_FILE, tmp_path / MEMORIES_FILE)) == []
    sources = store_clusters(tmp_path, [])
    assert list(iter_cluster_texts(sources)) == []


def store_clusters(folder: Path, clusters: Sequence[Cluster]) -> ClusterSources:
    records = read_records(folder / MEMORIES_FILE)
    write_clusters(folder / "clusters.parquet", clusters)
    write_array(folder / "memories.npy", word_vectors([r.content for r in records]))
    return ClusterSources(
        folder / "clusters.parquet", folder / MEMORIES_FILE, folder / "memories.npy"
    )


@pytest.mark.parametrize("bounds", [(256, 4_000_000), (3, 4_000_000), (256, 60)])
def test_texts_and_vectors_are_those_of_the_members(
    tmp_path: Path, bounds: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    records = export(tmp_path, mixed_lines(120, seed=5))
    vectors = word_vectors([r.content for r in records])
    # Clusters need not be runs of neighbours: those of compaction plans are not.
    runs = cluster_turns(records, target=5, protected_tail=0)
    clusters = [replace(c, member_positions=c.member_positions[::-1]) for c in runs]
    sources = store_clusters(tmp_path, clusters)
    monkeypatch.setattr(streaming, "BATCH_CLUSTERS", bounds[0])
    monkeypatch.setattr(streaming, "BATCH_CHARS", bounds[1])
    batches = list(iter_cluster_texts(sources))
    assert len(batches) > 1 or bounds == (256, 4_000_000)
    texts = [text for batch in batches for text in batch]
    assert [text.cluster for text in texts] == clusters
    for cluster, contents, rows in texts:
        assert list(contents) == [records[p].content for p in cluster.member_positions]
        assert np.array_equal(rows, vectors[list(cluster.member_positions)])


def test_skipped_clusters_come_without_texts_and_shift_no_other(tmp_path: Path) -> None:
    records = export(tmp_path, mixed_lines(120, seed=6))
    clusters = cluster_turns(records, target=4, protected_tail=0)
    sources = store_clusters(tmp_path, clusters)
    skipped = {c.cluster_id for c in clusters[::3]}
    (batch,) = iter_cluster_texts(sources, skip=skipped)
    assert [text.cluster for text in batch] == clusters
    for cluster, contents, rows in batch:
        wanted = () if cluster.cluster_id in skipped else cluster.member_positions
        assert list(contents) == [records[p].content for p in wanted]
        assert len(rows) == len(wanted)
    (nothing,) = iter_cluster_texts(sources, skip={c.cluster_id for c in clusters})
    assert not any(text.contents for text in nothing)
