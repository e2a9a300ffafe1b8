from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from noctuary.compact import clusters as tables
from noctuary.compact.clusters import write_clusters
from noctuary.compact.summaries import (
    Attempt,
    BatchResult,
    SummarySettings,
    from_row,
    iter_summaries,
    summarize_batch,
    write_tables,
)
from noctuary.compact.summarizers import Outcome
from noctuary.core.errors import StoreError
from tests.support.clusters import Bag, cluster_text


@pytest.fixture
def mixed() -> BatchResult:
    made = summarize_batch([cluster_text("a", 4), cluster_text("b", 0, 1, 2, 3)], Bag())
    strict = SummarySettings(threshold=0.999)
    declined = summarize_batch([cluster_text("d", 0, 1, 2, 3, user="u")], Bag(), settings=strict)
    return BatchResult(made.summaries + declined.summaries, made.attempts + declined.attempts, 3)


def write(directory: Path, *batches: BatchResult) -> tuple[Path, Path]:
    places = directory / "summaries.parquet", directory / "attempts.parquet"
    with write_tables(*places) as add:
        for batch in batches:
            add(batch)
    return places


def test_both_tables_survive_a_round_trip(tmp_path: Path, mixed: BatchResult) -> None:
    summaries, attempts = write(tmp_path, mixed)
    assert list(iter_summaries(summaries)) == mixed.summaries
    assert {s.status for s in mixed.summaries} == {"accepted", "declined", "trivial"}
    rows = pq.read_table(attempts).to_pylist()
    assert [from_row(Attempt, row) for row in rows] == mixed.attempts
    assert [a.outcome for a in mixed.attempts] == [Outcome.GATE]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["attempts.parquet", "summaries.parquet"]


def test_equal_rows_give_equal_bytes_however_they_are_cut(
    tmp_path: Path, mixed: BatchResult, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tables, "ROW_GROUP_ROWS", 2)
    whole = write(tmp_path / "one", mixed)
    singles = [BatchResult([s], [], 1) for s in mixed.summaries]
    cut = write(tmp_path / "two", *singles, BatchResult([], mixed.attempts, 0))
    assert [p.read_bytes() for p in whole] == [p.read_bytes() for p in cut]
    assert list(iter_summaries(cut[0])) == mixed.summaries


def test_after_an_exception_the_old_tables_stay(tmp_path: Path, mixed: BatchResult) -> None:
    places = write(tmp_path, mixed)
    before = [place.read_bytes() for place in places]
    broken = mixed._replace(attempts=[replace(mixed.attempts[0], summary_tokens="many")])
    with pytest.raises(Exception, match="many"), write_tables(*places) as add:
        add(broken)
    assert [place.read_bytes() for place in places] == before
    assert len(list(tmp_path.iterdir())) == 2


def test_a_foreign_or_missing_table_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="rebuild"):
        list(iter_summaries(tmp_path / "none.parquet"))
    write_clusters(tmp_path / "clusters.parquet", [])
    with pytest.raises(StoreError, match="expected"):
        list(iter_summaries(tmp_path / "clusters.parquet"))
