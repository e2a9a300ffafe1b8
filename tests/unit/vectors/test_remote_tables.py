"""The tiers at a URI that LanceDB is handed: kept as in a directory, and said where it is lost."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from noctuary.embed import tiers
from noctuary.embed.rotation import rotate
from noctuary.embed.tiers import (
    FULL_TIER,
    TableHome,
    TablesUnreachableError,
    TierReport,
    connect,
    sync_tiers,
    tier_tables,
    tiers_match,
)
from tests.support.tier_store import DIM, ROWS, TierStore, counts, search_tier

DIMS = (32, 64)
KEY, SECRET = "AKIAOFTHETESTS", "s3cr3t-of-the-tests"


@pytest.fixture
def home(tmp_path: Path) -> TableHome:
    (tmp_path / "tables").mkdir()
    return TableHome(tmp_path / "marks", (tmp_path / "tables").as_uri())


def sync(store: TierStore, home: TableHome, **options: Any) -> TierReport:
    columns = store.ids, store.hashes, store.vectors, store.rotation
    return sync_tiers(home, *columns, DIMS, **options)


def rows_of(home: TableHome, name: str) -> list[dict[str, Any]]:
    table = home.connect().open_table(name).to_arrow()
    return sorted(table.to_pylist(), key=lambda row: row["memory_id"])


def test_the_tables_are_those_of_a_directory(store: TierStore, home: TableHome) -> None:
    report = sync(store, home)
    assert [state.action for state in report.tiers] == ["created"] * 3
    store.sync()
    for name in tier_tables(DIM, DIMS):
        assert rows_of(home, name) == rows_of(store.home, name)
    assert home.list_tables("memory_vectors_") == sorted(tier_tables(DIM, DIMS))
    assert list(home.directory.iterdir()) == []
    assert all(match.ok and match.rows == ROWS for match in tiers_match(home, store.ids))
    query = rotate(store.vectors[7], store.rotation)
    assert search_tier(home, DIM, query, 5) == search_tier(store.home, DIM, query, 5)


def test_only_what_changed_is_written_and_stale_tables_go(
    store: TierStore, home: TableHome
) -> None:
    sync(store, home)
    assert {state.action for state in sync(store, home).tiers} == {"unchanged"}
    store.drop(5)
    store.hashes[9] = "edited"
    report = sync(store, home)
    assert {counts(state) for state in report.tiers} == {(0, 1, 1)}
    assert {state.rows for state in report.tiers} == {ROWS - 1}
    arguments = home, store.ids, store.hashes, store.vectors, store.rotation
    assert sync_tiers(*arguments, (32,)).dropped == ("memory_vectors_64",)
    assert "memory_vectors_64" not in home.list_tables("")


@pytest.mark.slow
def test_a_table_with_an_index_answers_as_one_without(store: TierStore, home: TableHome) -> None:
    (_, _, full) = sync(store, home, index_min_rows=ROWS).tiers
    assert full.index.startswith("IVF")
    query = rotate(store.vectors[3], store.rotation)
    store.sync()
    exact = [hit.memory_id for hit in search_tier(store.home, DIM, query, 3)]
    assert [hit.memory_id for hit in search_tier(home, DIM, query, 3)] == exact


@pytest.mark.parametrize("step", ["_create", "_apply"])
def test_a_write_that_fails_leaves_its_mark_and_the_next_night_repairs_it(
    store: TierStore, home: TableHome, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    if step != "_create":
        sync(store, home)
        store.hashes[3] = "edited"
    real = vars(tiers)[step]

    def killed(*arguments: Any) -> Any:
        real(*arguments)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(tiers, step, killed)
        with pytest.raises(KeyboardInterrupt):
            sync(store, home)
    assert home.is_dirty("memory_vectors_32")
    assert not home.is_dirty(FULL_TIER), "it was not begun"
    first, *_ = sync(store, home).tiers
    assert first.action == "rebuilt"
    assert "was being written" in first.reason
    assert not home.is_dirty("memory_vectors_32")


def test_a_damaged_table_is_written_again(
    store: TierStore, home: TableHome, tmp_path: Path
) -> None:
    sync(store, home)
    for path in (tmp_path / "tables" / f"{FULL_TIER}.lance" / "data").iterdir():
        path.write_bytes(b"not lance")
    report = sync(store, home)
    assert [state.action for state in report.tiers] == ["unchanged", "unchanged", "rebuilt"]
    assert all(match.ok for match in tiers_match(home, store.ids))


def test_a_removed_home_leaves_no_table_and_no_mark(
    store: TierStore, home: TableHome, tmp_path: Path
) -> None:
    sync(store, home)
    with pytest.raises(KeyboardInterrupt), home.marked("memory_vectors_32"):
        raise KeyboardInterrupt
    home.remove_all()
    assert list((tmp_path / "tables").iterdir()) == []
    assert not home.is_dirty("memory_vectors_32")
    home.remove_all()
    home.remove_table(FULL_TIER)
    assert home.list_tables("") == []


def test_a_server_that_is_not_there_is_one_sentence_without_secrets(
    store: TierStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {
        "AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_REGION": "us-east-1",
        "AWS_ENDPOINT": "http://127.0.0.1:1", "AWS_ALLOW_HTTP": "true",
    }.items():  # fmt: skip
        monkeypatch.setenv(name, value)
    lost = TableHome(tmp_path / "marks", "s3://bucket/stores/one")
    for call in (
        lambda: sync(store, lost),
        lambda: tiers_match(lost, store.ids),
        lost.remove_all,
    ):
        with pytest.raises(TablesUnreachableError) as caught:
            call()
        said = str(caught.value)
        assert "s3://bucket/stores/one (tiers.uri) cannot be reached" in said
        assert "\n" not in said
        assert SECRET not in said
        assert KEY not in said
        assert caught.value.__cause__ is None


def test_the_setting_chooses_the_place(tmp_path: Path) -> None:
    assert TableHome(tmp_path).uri == str(tmp_path)
    home = TableHome(tmp_path, "s3://bucket/stores/one")
    assert home.uri == "s3://bucket/stores/one"


def test_a_directory_is_opened_as_it_is(tmp_path: Path) -> None:
    assert connect(tmp_path).uri == str(tmp_path)
