from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from mnemon.compact import summaries
from mnemon.compact.clusters import Cluster
from mnemon.compact.summaries import (
    Summary,
    SummarySettings,
    recipe_digest,
    summarize_clusters,
)
from mnemon.compact.tables import (
    read_clusters,
    read_known,
    read_summaries,
    write_clusters,
    write_summaries,
)
from mnemon.errors import StoreError

WORDS = ("lyon", "rent", "cat", "flat", "train", "move")


class Bag:
    """A bag-of-words encoder with a closed form, which counts what it was asked to encode."""

    def __init__(self) -> None:
        self.encoded: list[str] = []

    def __call__(self, texts: list[str]) -> NDArray[np.float32]:
        self.encoded.extend(texts)
        return bag(texts)


def bag(texts: Sequence[str]) -> NDArray[np.float32]:
    return np.array([[t.count(word) for word in WORDS] for t in texts], dtype=np.float32)


CONTENTS = [
    "Ann: lyon and the flat",
    "Bob: the rent in lyon",
    "Ann: train",
    "Bob: lyon flat move",
    "Ann: cat",
    "Bob: cat",
    "Ann: rent",
]


def cluster(name: str, *positions: int) -> Cluster:
    return Cluster(
        cluster_id=name,
        session_id="s",
        ordinal=0,
        member_positions=positions,
        member_ids=tuple(f"m{i}" for i in positions),
        first_us=positions[0],
        last_us=positions[-1],
        trivial=len(positions) == 1,
    )


def contents_of(positions: Sequence[int]) -> list[str]:
    return [CONTENTS[i] for i in positions]


def vectors_of(positions: Sequence[int]) -> NDArray[np.float32]:
    return bag(contents_of(positions))


def run(clusters: Sequence[Cluster], encode: Bag, **options: object) -> list[Summary]:
    return summarize_clusters(clusters, contents_of, vectors_of, encode, **options)  # type: ignore[arg-type]


def test_an_accepted_summary_names_its_sources_and_their_time() -> None:
    encode = Bag()
    (summary,) = run([cluster("c", 0, 1, 2, 3)], encode)
    assert summary.status == "accepted"
    assert summary.method == "extractive"
    assert summary.text == "Ann: lyon and the flat Bob: lyon flat move"
    assert encode.encoded == [summary.text]
    assert summary.source_ids == ("m0", "m1", "m2", "m3")
    assert summary.source_positions == (0, 1, 2, 3)
    assert (summary.first_us, summary.last_us) == (0, 3)
    assert summary.summary_tokens < summary.source_tokens
    assert summary.report is not None
    assert summary.report.passed
    assert summary.reason == ""


def test_a_refused_candidate_is_kept_with_its_report() -> None:
    settings = SummarySettings(threshold=0.999)
    (summary,) = run([cluster("c", 0, 1, 2, 3)], Bag(), settings=settings)
    assert summary.status == "declined"
    assert summary.text
    assert summary.report is not None
    assert not summary.report.passed
    assert summary.report.threshold == 0.999
    assert summary.reason == summary.report.reasons[0]


def test_a_singleton_stands_for_itself_without_a_verdict() -> None:
    encode = Bag()
    (summary,) = run([cluster("c", 4)], encode)
    assert (summary.status, summary.method) == ("trivial", "trivial")
    assert summary.text == CONTENTS[4]
    assert summary.report is None
    assert encode.encoded == []


def test_what_cannot_shrink_is_declined_without_encoding() -> None:
    encode = Bag()
    settings = SummarySettings(density=1.0, aggressive_density=1.0)
    (summary,) = run([cluster("c", 4, 5)], encode, settings=settings)
    assert (summary.status, summary.method, summary.text) == ("declined", "none", "")
    assert "smaller" in summary.reason
    assert encode.encoded == []


def test_a_summary_of_one_verbatim_turn_is_not_embedded_again() -> None:
    encode = Bag()
    (summary,) = run([cluster("c", 4, 5)], encode)
    assert summary.text == "Ann: cat"
    assert summary.status == "accepted"
    assert encode.encoded == []


def test_results_keep_the_order_over_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    clusters = [cluster("a", 4), cluster("b", 0, 1, 2, 3), cluster("c", 4, 5), cluster("d", 6)]
    whole = run(clusters, Bag())
    assert [s.cluster_id for s in whole] == ["a", "b", "c", "d"]
    monkeypatch.setattr(summaries, "BATCH_CLUSTERS", 1)
    assert run(clusters, Bag()) == whole


def test_known_summaries_are_reused_with_todays_positions() -> None:
    old = cluster("c", 0, 1, 2, 3)
    (first,) = run([old], Bag())
    encode = Bag()
    moved = replace(old, member_positions=(3, 4, 5, 6))
    (again,) = run([moved], encode, known={"c": first})
    assert encode.encoded == []
    assert again == replace(first, source_positions=(3, 4, 5, 6))


def test_progress_counts_fresh_clusters() -> None:
    class Log:
        def __init__(self) -> None:
            self.calls: list[tuple[str, int, int]] = []

        def update(self, task: str, done: int, total: int) -> None:
            self.calls.append((task, done, total))

    log = Log()
    run([cluster("a", 4), cluster("b", 5, 6)], Bag(), progress=log)
    assert log.calls == [("summaries", 2, 2)]


def test_an_encoder_that_loses_a_text_is_refused() -> None:
    with pytest.raises(ValueError, match="0 vectors for 1"):
        summarize_clusters(
            [cluster("c", 0, 1, 2, 3)], contents_of, vectors_of, lambda texts: np.zeros((0, 6))
        )


def test_a_recipe_depends_on_encoder_and_settings() -> None:
    digests = {
        recipe_digest("e1"),
        recipe_digest("e2"),
        recipe_digest("e1", SummarySettings(threshold=0.7)),
        recipe_digest("e1", SummarySettings(density=0.5)),
    }
    assert len(digests) == 4
    assert recipe_digest("e1") == recipe_digest("e1", SummarySettings())


@pytest.fixture
def mixed() -> list[Summary]:
    made = run([cluster("a", 4), cluster("b", 0, 1, 2, 3)], Bag())
    strict = SummarySettings(threshold=0.999)
    return made + run([cluster("d", 0, 1, 2, 3)], Bag(), settings=strict)


def test_summaries_survive_a_round_trip_and_equal_rows_give_equal_bytes(
    tmp_path: Path, mixed: list[Summary]
) -> None:
    one, two = tmp_path / "one.parquet", tmp_path / "two.parquet"
    write_summaries(one, mixed, recipe="r")
    write_summaries(two, mixed, recipe="r")
    assert read_summaries(one) == mixed
    assert {s.status for s in mixed} == {"accepted", "declined", "trivial"}
    assert one.read_bytes() == two.read_bytes()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["one.parquet", "two.parquet"]


def test_clusters_survive_a_round_trip(tmp_path: Path) -> None:
    clusters = [cluster("a", 4), cluster("b", 0, 1)]
    write_clusters(tmp_path / "clusters.parquet", clusters)
    assert read_clusters(tmp_path / "clusters.parquet") == clusters
    write_clusters(tmp_path / "clusters.parquet", [])
    assert read_clusters(tmp_path / "clusters.parquet") == []


def test_only_summaries_of_the_same_recipe_are_known(tmp_path: Path, mixed: list[Summary]) -> None:
    path = tmp_path / "summaries.parquet"
    assert read_known(path, "r") == {}
    write_summaries(path, mixed, recipe="r")
    assert read_known(path, "r") == {s.cluster_id: s for s in mixed}
    assert read_known(path, "other") == {}
    path.write_bytes(path.read_bytes()[:100])
    assert read_known(path, "r") == {}


def test_a_foreign_or_missing_table_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="rebuild"):
        read_clusters(tmp_path / "none.parquet")
    write_clusters(tmp_path / "clusters.parquet", [])
    with pytest.raises(StoreError, match="expected"):
        read_summaries(tmp_path / "clusters.parquet")
