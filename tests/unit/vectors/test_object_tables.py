"""The tiers in an object store: real lancedb over HTTP against a server that speaks S3."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from noctuary.vectors import object_tables, tiers
from noctuary.vectors.lance import LocalTables, as_home, connect, table_home
from noctuary.vectors.object_tables import ObjectTables, TablesUnreachableError
from noctuary.vectors.rotation import rotate
from noctuary.vectors.tiers import (
    FULL_TIER,
    TierReport,
    search_tier,
    sync_tiers,
    tier_tables,
    tiers_match,
)
from tests.support.s3_server import BUCKET, KEY, SECRET, S3Server, s3_server
from tests.support.tier_store import DIM, ROWS, TierStore, counts

URI = f"s3://{BUCKET}/stores/one"
DIMS = (32, 64)


@pytest.fixture(scope="module")
def running() -> Iterator[S3Server]:
    with s3_server() as server:
        yield server


@pytest.fixture
def server(running: S3Server, monkeypatch: pytest.MonkeyPatch) -> S3Server:
    for name, value in running.environment().items():
        monkeypatch.setenv(name, value)
    running.files().delete_dir_contents(BUCKET)
    return running


def sync(store: TierStore, home: ObjectTables, **options: Any) -> TierReport:
    columns = store.ids, store.hashes, store.vectors, store.rotation
    return sync_tiers(home, *columns, DIMS, **options)


def rows_of(home: Any, name: str) -> list[dict[str, Any]]:
    table = home.connect().open_table(name).to_arrow()
    return sorted(table.to_pylist(), key=lambda row: row["memory_id"])


@pytest.mark.slow
def test_the_tables_are_those_of_a_directory(store: TierStore, server: S3Server) -> None:
    home = ObjectTables(URI)
    report = sync(store, home)
    assert [state.action for state in report.tiers] == ["created"] * 3
    store.sync()
    for name in tier_tables(DIM, DIMS):
        assert rows_of(home, name) == rows_of(LocalTables(store.lance), name)
    assert all(path.startswith(f"{BUCKET}/stores/one/") for path in server.names())
    assert home.list_tables("memory_vectors_") == sorted(tier_tables(DIM, DIMS))
    assert all(match.ok and match.rows == ROWS for match in tiers_match(home, store.ids))
    query = rotate(store.vectors[7], store.rotation)
    assert search_tier(home, DIM, query, 5) == search_tier(store.lance, DIM, query, 5)


def test_only_what_changed_is_written_and_stale_tables_go(
    store: TierStore, server: S3Server
) -> None:
    home = ObjectTables(URI)
    sync(store, home)
    before = server.names()
    assert {state.action for state in sync(store, home).tiers} == {"unchanged"}
    assert server.names() == before
    store.drop(5)
    store.hashes[9] = "edited"
    report = sync(store, home)
    assert {counts(state) for state in report.tiers} == {(0, 1, 1)}
    assert {state.rows for state in report.tiers} == {ROWS - 1}
    arguments = home, store.ids, store.hashes, store.vectors, store.rotation
    assert sync_tiers(*arguments, (32,)).dropped == ("memory_vectors_64",)
    assert not server.names("stores/one/memory_vectors_64.lance")


@pytest.mark.slow
def test_a_table_with_an_index_answers_as_one_without(store: TierStore, server: S3Server) -> None:
    home = ObjectTables(URI)
    (_, _, full) = sync(store, home, index_min_rows=ROWS).tiers
    assert full.index.startswith("IVF")
    assert server.names(f"stores/one/{FULL_TIER}.lance/_indices")
    query = rotate(store.vectors[3], store.rotation)
    store.sync()
    exact = [hit.memory_id for hit in search_tier(store.lance, DIM, query, 3)]
    assert [hit.memory_id for hit in search_tier(home, DIM, query, 3)] == exact


@pytest.mark.usefixtures("server")
@pytest.mark.parametrize("step", ["_create", "_apply"])
@pytest.mark.slow
def test_a_write_that_fails_leaves_its_mark_and_the_next_night_repairs_it(
    store: TierStore, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    home = ObjectTables(URI)
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


@pytest.mark.slow
def test_a_damaged_table_is_written_again(store: TierStore, server: S3Server) -> None:
    home = ObjectTables(URI)
    sync(store, home)
    for path in server.names(f"stores/one/{FULL_TIER}.lance/data"):
        with server.files().open_output_stream(path) as stream:
            stream.write(b"not lance")
    report = sync(store, home)
    assert [state.action for state in report.tiers] == ["unchanged", "unchanged", "rebuilt"]
    assert all(match.ok for match in tiers_match(home, store.ids))


@pytest.mark.slow
def test_a_removed_home_leaves_no_object_and_its_neighbour_alone(
    store: TierStore, server: S3Server
) -> None:
    home, neighbour = ObjectTables(URI), ObjectTables(f"{URI}-two")
    sync(store, home)
    sync(store, neighbour)
    with pytest.raises(KeyboardInterrupt), home.marked("memory_vectors_32"):
        raise KeyboardInterrupt
    assert home.is_dirty("memory_vectors_32")
    home.remove_all()
    assert not server.names("stores/one")
    assert not home.is_dirty("memory_vectors_32")
    assert neighbour.has_table(FULL_TIER)
    home.remove_all()
    home.remove_table(FULL_TIER)
    assert home.list_tables("") == []


@pytest.mark.usefixtures("server")
@pytest.mark.slow
def test_two_writers_of_one_version_never_both_win(store: TierStore) -> None:
    import pyarrow as pa

    home = ObjectTables(URI)
    sync(store, home)
    first, second = (home.connect().open_table(FULL_TIER) for _ in range(2))
    row = first.to_arrow().slice(0, 1)
    for number, table in enumerate((first, second)):
        named = row.set_column(0, "memory_id", pa.array([f"new-{number}"]))
        table.add(named)
    ids = {r["memory_id"] for r in rows_of(home, FULL_TIER)}
    assert ids == {*store.ids, "new-0", "new-1"}, "the second commit went on from the first"


@pytest.mark.slow
def test_a_lost_server_is_one_sentence_without_secrets(
    store: TierStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(object_tables, "RETRIES", 1)
    with s3_server() as lost:
        for name, value in lost.environment().items():
            monkeypatch.setenv(name, value)
        home = ObjectTables(URI)
        sync(store, home)
        lost.stop()
        calls = (
            lambda: sync(store, home),
            lambda: tiers_match(home, store.ids),
            lambda: home.list_tables(""),
            lambda: home.is_dirty(FULL_TIER),
        )
        for call in calls:
            with pytest.raises(TablesUnreachableError) as caught:
                call()
            said = str(caught.value)
            assert URI in said
            assert "NETWORK_CONNECTION" in said
            assert "\n" not in said
            assert SECRET not in said
            assert KEY not in said
            assert caught.value.__cause__ is None


@pytest.mark.usefixtures("server")
@pytest.mark.slow
def test_a_bucket_that_is_not_there_is_said(store: TierStore) -> None:
    with pytest.raises(TablesUnreachableError, match="nowhere/tables"):
        sync(store, ObjectTables("s3://nowhere/tables"))


def test_the_setting_chooses_the_home(tmp_path: Path) -> None:
    assert table_home(tmp_path) == LocalTables(tmp_path) == as_home(tmp_path)
    home = table_home(tmp_path, URI)
    assert home == ObjectTables(URI)
    assert as_home(home) is home
    assert home.table_uri("t") == f"{URI}/t.lance"
    assert ObjectTables(f"{URI}/").table_uri("t") == f"{URI}/t.lance"


def test_options_come_from_the_usual_variables_and_stand_in_no_text(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT", "AWS_REGION"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    monkeypatch.setenv("AWS_SESSION_TOKEN", "token")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-central-1")
    home = ObjectTables(URI)
    options = home.storage_options()
    assert options["aws_secret_access_key"] == SECRET
    assert options["aws_session_token"] == "token"
    assert options["aws_region"] == "eu-central-1"
    assert "aws_endpoint" not in options
    assert "allow_http" not in options
    monkeypatch.setenv("AWS_ENDPOINT", "https://s3.example")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://localhost:1")
    assert home.storage_options()["aws_endpoint"] == "http://localhost:1"
    assert home.storage_options()["allow_http"] == "true"
    assert SECRET not in repr(home)


def test_a_directory_is_opened_without_options(tmp_path: Path) -> None:
    assert connect(tmp_path).uri == str(tmp_path)
