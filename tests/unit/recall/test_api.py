from __future__ import annotations

import importlib
import os
import sqlite3
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import pytest

import noctuary
from noctuary.core.manifest import read_pointer
from noctuary.recall import api
from noctuary.recall.profile import RetrievalProfile
from noctuary.recall.result import RecallResult
from noctuary.snapshot.publish import rollback
from noctuary.text import secrets as sensitivity
from tests.support.store import Store, memory, new_store, renumber

recall = api.recall


def codes(result: RecallResult) -> list[str]:
    return [w.code for w in result.warnings]


def ids(result: RecallResult) -> list[int | str]:
    return [m.id for m in result.memories]


def logged(store: Store) -> list[tuple[str, int, str]]:
    with closing(sqlite3.connect(store.paths.access_log)) as log:
        return log.execute(
            "SELECT memory_id, rank, snapshot_id FROM retrievals ORDER BY position"
        ).fetchall()


def files_below(root: Path) -> dict[str, tuple[int, int]]:
    return {
        str(p.relative_to(root)): (p.stat().st_size, p.stat().st_mtime_ns)
        for p in root.rglob("*")
        if p.is_file()
    }


def test_the_only_store_answers(dense_store: Store) -> None:
    result = recall("spare key")
    assert ids(result)[0] == 101
    assert result.store == str(dense_store.root)
    assert codes(result) == ["user_required"]


@pytest.mark.parametrize("name", ["path", "text", "name"])
def test_a_store_is_named_by_path_or_name(dense_store: Store, name: str) -> None:
    store = {"path": dense_store.root, "text": str(dense_store.root), "name": "house"}[name]
    assert ids(recall("spare key", store=store))[0] == 101


def test_every_argument_reaches_the_ranking(dense_store: Store) -> None:
    assert len(recall("door", 1).memories) == 1
    assert {m.wing for m in recall("door flight", wing="home").memories} == {"home"}
    assert {m.wing for m in recall("flight Atlas", wing="work").memories} == {"work"}
    assert {m.room for m in recall("key", room="hall").memories} == {"hall"}
    assert {m.category for m in recall("flight", category="turn").memories} == {"turn"}
    assert 106 in ids(recall("door code", user="ana"))
    assert 106 not in ids(recall("door code", user="ben"))
    assert ids(recall("door", sort_by="recency", user="ben", deadline_ms=0.0))[0] == 107
    early = datetime(2026, 1, 3, tzinfo=UTC)
    assert 104 not in ids(recall("Nina", as_of=early))
    assert ids(recall("cat", profile=RetrievalProfile(dense_weight=0.0))) == []
    assert "deadline_dense" in codes(recall("cat", deadline_ms=0.0))


def test_configured_ranking_is_used_unless_a_profile_is_given(
    dense_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NOCTUARY_RECALL_FUSION", "rrf")
    assert recall("key").profile["fusion"] == "rrf"
    assert recall("key", profile=RetrievalProfile(fusion="cc")).profile["fusion"] == "cc"
    assert recall("key", profile={"rrf_k": 10}).profile["fusion"] == "rrf"


@pytest.mark.parametrize(("argument", "value"), [("k", -1), ("sort_by", "date")])
def test_arguments_that_no_store_could_honour_are_errors(
    dense_store: Store, argument: str, value: object
) -> None:
    arguments: dict[str, object] = {argument: value}
    with pytest.raises(ValueError, match=argument):
        recall("key", **arguments)  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(("argument", "value"), [("k", -1), ("sort_by", "date")])
def test_they_are_errors_in_a_home_without_a_store_too(
    home: Path, argument: str, value: object
) -> None:
    arguments: dict[str, object] = {argument: value}
    with pytest.raises(ValueError, match=argument):
        recall("key", **arguments)  # pyright: ignore[reportArgumentType]


def test_what_was_recalled_is_logged_in_order(dense_store: Store) -> None:
    result = recall("spare key flight", 3)
    expected = [
        (str(m.id), rank, result.snapshot_id) for rank, m in enumerate(result.memories, start=1)
    ]
    assert logged(dense_store) == expected


def test_a_dry_run_writes_nothing_at_all(dense_store: Store) -> None:
    before = files_below(dense_store.root)
    assert recall("spare key", dry_run=True).memories
    assert files_below(dense_store.root) == before


def test_logging_can_be_switched_off(dense_store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NOCTUARY_RECALL_LOG_RETRIEVALS", "no")
    before = files_below(dense_store.root)
    assert recall("spare key").memories
    assert files_below(dense_store.root) == before


def test_an_empty_answer_is_not_logged(dense_store: Store) -> None:
    recall("spare key", wing="elsewhere")
    recall("")
    assert not dense_store.paths.access_log.exists()


def test_recall_writes_only_to_the_access_log(dense_store: Store) -> None:
    before = set(files_below(dense_store.root))
    recall("spare key")
    assert {p.split("-")[0] for p in set(files_below(dense_store.root)) - before} == {
        "access.sqlite"
    }


def test_a_snapshot_published_meanwhile_is_picked_up(dense_store: Store) -> None:
    first = recall("spare key")
    new = dense_store.publish(renumber([memory("The spare key is at the neighbour's.")], 500))
    second = recall("spare key")
    assert (second.snapshot_id, ids(second)) == (new, [500])
    assert second.snapshot_id != first.snapshot_id


def test_a_rollback_is_picked_up(dense_store: Store) -> None:
    first = read_pointer(dense_store.paths).snapshot_id
    dense_store.publish(renumber([memory("The spare key is at the neighbour's.")], 500))
    assert ids(recall("spare key")) == [500]
    rollback(dense_store.paths)
    result = recall("spare key")
    assert result.snapshot_id == first
    assert ids(result)[0] == 101


def test_several_stores_are_a_warning_and_the_last_published_answers(
    home: Path, dense_store: Store
) -> None:
    other = new_store(home / "other")
    other.publish(renumber([memory("The spare key is under the mat.")], 900))
    os.utime(dense_store.paths.current, ns=(1, 1))
    result = recall("spare key")
    assert ids(result) == [900]
    assert "store_guessed" in codes(result)
    (warning,) = (w for w in result.warnings if w.code == "store_guessed")
    assert "other" in warning.message
    assert "store_guessed" not in codes(recall("spare key", store="other"))


def test_the_store_variable_decides_among_several(
    home: Path, dense_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    new_store(home / "other").publish(renumber([memory("Another spare key.")], 900))
    monkeypatch.setenv("NOCTUARY_STORE", "house")
    result = recall("spare key")
    assert ids(result)[0] == 101
    assert "store_guessed" not in codes(result)


def test_package_function_and_attribute_are_all_callable(dense_store: Store) -> None:
    from noctuary import recall as attribute

    package = importlib.import_module("noctuary.recall")
    wanted = ids(recall("spare key"))
    assert ids(attribute("spare key")) == wanted
    assert ids(package("spare key")) == wanted  # pyright: ignore[reportCallIssue]
    assert ids(noctuary.recall("spare key")) == wanted
    assert package.api is api


def test_an_unknown_name_of_the_package_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="remember"):
        _ = noctuary.remember  # pyright: ignore[reportAttributeAccessIssue]
    assert set(noctuary.__all__) == {
        "Context", "Expansion", "RecallResult", "RecallWarning", "RecalledMemory",
        "RetrievalProfile", "SensitiveAnswer", "SensitiveMemory", "__version__", "assemble",
        "expand", "inject", "recall", "recall_sensitive", "register_hook",
    }  # fmt: skip
    assert noctuary.RecallResult is RecallResult


@pytest.mark.parametrize(
    ("flags", "dry_run", "scans"),
    [
        ({}, False, 0),
        ({"replay_log": True, "query_expansion_enabled": True}, False, 1),
        ({"replay_log": True, "query_expansion_enabled": True}, True, 0),
    ],
)
def test_a_question_is_scanned_once_and_only_where_it_would_be_kept(
    dense_store: Store,
    monkeypatch: pytest.MonkeyPatch,
    flags: dict[str, bool],
    dry_run: bool,
    scans: int,
) -> None:
    scanned: list[str] = []
    monkeypatch.setattr(sensitivity, "find_text_sensitivity", scanned.append)
    assert recall("spare key", profile=flags, dry_run=dry_run).memories
    assert scanned == ["spare key"] * scans
