"""`expand`: everything that a summary stands for, once, in order, and nothing of others."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from datetime import UTC, datetime, timedelta

import pytest
from click.testing import CliRunner

from noctuary import expand
from noctuary.cli.main import main
from noctuary.core import store as layout
from noctuary.core.errors import SnapshotCorruptError, StoreError
from noctuary.recall.engine import Recaller
from noctuary.recall.explain import UnknownSummaryError, expand_from
from noctuary.recall.profile import RetrievalProfile
from noctuary.recall.reader import SnapshotReader
from tests.support.damage import sign
from tests.support.store import Store, renumber, turns

NIGHT = datetime(2026, 1, 20, tzinfo=UTC)


def only_summary(store: Store) -> str:
    (summary,) = Recaller.open(store.root).reader.summaries.ids
    return summary


def test_every_turn_comes_back_once_and_in_order_of_time(dense_store: Store) -> None:
    found = expand(only_summary(dense_store), store=str(dense_store.root))
    assert [s.id for s in found.sources] == [109, 110, 111, 112]
    assert found.sources[0].content == "Ana: we need a flight to Lisbon in June."
    moments = [s.created_at for s in found.sources]
    assert moments == [NIGHT + timedelta(minutes=m) for m in range(4)]
    assert (found.first_at, found.last_at) == (moments[0], moments[-1])
    assert found.method.startswith("extractive")
    assert found.plan_id is None
    assert found.confidence == found.gate["confidence"]
    assert found.gate["decay_rate"] == pytest.approx(1 - found.gate["confidence"])
    assert found.gate["summary_tokens"] < found.gate["source_tokens"]
    assert found.gate["facts"]["introduced"] == []


def test_it_is_what_a_recall_lists_as_sources(dense_store: Store) -> None:
    recaller = Recaller.open(dense_store.root)
    profile = RetrievalProfile(turn_view="summaries")
    (summary, *_) = recaller.recall("morning flight", 3, profile=profile).memories
    found = expand_from(recaller.reader, recaller.snapshot_id, str(summary.id), None)
    assert tuple(s.id for s in found.sources) == summary.sources
    assert found.text == summary.content


def test_parents_are_named_with_their_text_where_it_is_still_there(dense_store: Store) -> None:
    summary = only_summary(dense_store)
    directory = dense_store.snapshot(Recaller.open(dense_store.root).snapshot_id)
    rows_file = directory / layout.ROWS_FILE
    rows_file.chmod(0o644)
    with closing(sqlite3.connect(rows_file)) as rows, rows:
        parents = [(summary, 0, "gone"), (summary, 1, summary)]
        rows.executemany("INSERT INTO summary_parents VALUES (?, ?, ?)", parents)
    (directory / layout.MANIFEST_FILE).chmod(0o644)
    sign(directory)
    found = expand_from(SnapshotReader.open(directory), "s", summary, None)
    assert [(p.id, p.text is None) for p in found.parents] == [("gone", True), (summary, False)]


def test_a_summary_of_another_user_is_as_unknown_as_one_that_nobody_has(dense_store: Store) -> None:
    texts = [f"Ana: the flight number {n} to Rome." for n in range(6)]
    dense_store.publish(renumber(turns("s1", *texts, user="ana")))
    summary, store = only_summary(dense_store), str(dense_store.root)
    assert len(expand(summary, user="ana", store=store).sources) == 4
    said: list[str] = []
    for asked, user in ((summary, None), ("nothing", None)):
        with pytest.raises(UnknownSummaryError) as error:
            expand(asked, user=user, store=store)
        said.append(str(error.value).replace(asked, "ID"))
    assert said[0] == said[1]
    with pytest.raises(UnknownSummaryError):
        expand(summary, user="ben", store=store)


def test_a_store_without_a_snapshot_says_so(empty_store: Store) -> None:
    with pytest.raises(StoreError):
        expand("x", store=str(empty_store.root))


def test_damage_is_a_sentence(dense_store: Store) -> None:
    recaller = Recaller.open(dense_store.root)
    summary = only_summary(dense_store)
    recaller.reader.close()
    with pytest.raises(SnapshotCorruptError, match="run `noctuary doctor`"):
        expand_from(recaller.reader, "s", summary, None)


def test_the_command_prints_all_of_it(dense_store: Store) -> None:
    summary, store = only_summary(dense_store), str(dense_store.root)
    plain = CliRunner().invoke(main, ["expand", summary, "--store", store])
    assert plain.exit_code == 0
    assert plain.output.startswith(f"summary [{summary}]  extractive")
    assert plain.output.count("  [1") == 4
    assert "stands for 4:" in plain.output
    printed = CliRunner().invoke(main, ["expand", summary, "--store", store, "--json"])
    told = json.loads(printed.output)
    assert [s["id"] for s in told["sources"]] == [109, 110, 111, 112]
    assert told["last_at"] == "2026-01-20T00:03:00+00:00"


def test_an_unknown_summary_is_exit_code_1(dense_store: Store) -> None:
    store = str(dense_store.root)
    failed = CliRunner().invoke(main, ["expand", "nothing", "--store", store, "--json"])
    assert failed.exit_code == 1
    assert json.loads(failed.output)["error"] == "UnknownSummaryError"
