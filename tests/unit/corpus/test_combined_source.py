"""Two sources as one, in key order."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from noctuary.core.errors import SourceError
from noctuary.sources.corpus import read_records
from noctuary.sources.export import export_corpus
from noctuary.sources.ingest import CombinedSource
from noctuary.sources.source import Source, open_source

Make = Callable[..., Path]


def combined(one: Path, other: Path) -> CombinedSource:
    return CombinedSource(open_source(one), open_source(other))


def keys(source: Source) -> list[int | str | None]:
    return [row.key for row in source.rows()]


def test_rows_of_both_come_in_key_order(make_jsonl: Make) -> None:
    def ids(*found: object) -> list[dict[str, object]]:
        return [{"id": i, "content": f"memory {i}"} for i in found]

    numbers = make_jsonl(ids(2, 5, 9), "a.jsonl"), make_jsonl(ids(-7, -3, 6), "b.jsonl")
    with combined(*numbers) as source:
        assert keys(source) == [-7, -3, 2, 5, 6, 9]
        assert source.count() == 6
    texts = make_jsonl(ids("a", "z"), "c.jsonl"), make_jsonl(ids("turn-1", "turn-2"), "d.jsonl")
    with combined(*texts) as source:
        assert keys(source) == ["a", "turn-1", "turn-2", "z"]


def test_rows_without_an_id_stay_behind_their_neighbour(make_jsonl: Make) -> None:
    rows = [{"id": 1, "content": "a"}, {"content": "no id"}, {"id": 4, "content": "b"}]
    one, other = make_jsonl(rows, "a.jsonl"), make_jsonl([{"id": 2, "content": "c"}], "b.jsonl")
    with combined(one, other) as source:
        assert keys(source) == [1, None, 2, 4]


def test_an_empty_side_changes_nothing(make_jsonl: Make, make_store: Make) -> None:
    rows = make_jsonl([{"id": 3, "content": "a"}], "a.jsonl")
    with combined(make_store(), rows) as source:
        assert keys(source) == [3]
    with combined(rows, make_jsonl([], "empty.jsonl")) as source:
        assert keys(source) == [3]


def test_of_one_id_the_stores_row_is_the_memory(make_jsonl: Make, tmp_path: Path) -> None:
    one = make_jsonl([{"id": "x", "content": "the store's"}], "a.jsonl")
    other = make_jsonl([{"id": "x", "content": "the other"}], "b.jsonl")
    with combined(one, other) as source:
        report = export_corpus(source, tmp_path / "out")
    assert report.quarantined == {"duplicate_id": 1}
    assert [r.content for r in read_records(tmp_path / "out")] == ["the store's"]


def test_it_is_named_as_the_store_with_both_states(make_jsonl: Make, make_store: Make) -> None:
    store, rows = make_store([{}]), make_jsonl([{"id": 3, "content": "a"}], "a.jsonl")
    with combined(store, rows) as source:
        identity = source.identity()
    assert (identity.kind, identity.location) == ("claude-memory-sqlite", str(store))
    assert (identity.marker["rows"], identity.marker["jsonl_rows"]) == (1, 1)


def test_both_are_closed(make_store: Make, tmp_path: Path) -> None:
    parts = [open_source(make_store([{}], path=tmp_path / name)) for name in ("a.db", "b.db")]
    CombinedSource(*parts).close()
    for part in parts:
        with pytest.raises(SourceError):
            part.count()
