"""What the lookups answer, against the same store read another way."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from noctuary.agents.mcp_view import (
    MAX_CONTENT_CHARS,
    AskedWronglyError,
    Seen,
    UnknownItemError,
    View,
    cluster_uri,
    item_uri,
    joined_with,
    plain,
    read_cluster,
    read_item,
    read_state,
    recall_in_view,
    relate,
)
from noctuary.core import store as layout
from noctuary.core.errors import SnapshotCorruptError, SnapshotMissingError, StoreError
from noctuary.graph.walk import OPEN_END_US
from noctuary.recall.api import expand, recall
from noctuary.recall.engine import Recaller
from tests.support.descriptors import open_files
from tests.support.store import Store, household, memory, new_store, renumber
from tests.support.views import archive


def ids(found: Iterable[Any]) -> list[Any]:
    return [m["id"] for m in found]


def test_a_recall_is_the_recall_of_noctuary(owned_store: Store) -> None:
    view = View(owned_store.root, user="ana")
    for query in ("spare key", "Atlas migration", "flight"):
        mine = recall_in_view(view, query, 5, wing="zanawing")
        theirs = recall(query, 5, user="ana", wing="zanawing", store=owned_store.root).to_json()
        assert mine["memories"], query
        for one, other in zip(mine["memories"], theirs["memories"], strict=True):
            del other["legs"]
            assert one == {**other, "uri": item_uri(one["id"]), "truncated": None}
        assert mine["snapshot_id"] == theirs["snapshot_id"]
        assert "profile" not in mine
        assert "pipeline" not in mine
    explained = recall_in_view(view, "spare key", 3, explain=True)
    assert {"profile_used", "pipeline", "phase_timing_ms"} <= explained.keys()
    for found in explained["memories"]:
        assert found["legs"]
        total = sum(event["delta"] for event in found["score_events"])
        assert total == pytest.approx(found["final_score"], abs=1e-5)


def test_filters_of_a_recall_are_filters(owned_store: Store) -> None:
    view = View(owned_store.root, user="ana")

    def found(**how: Any) -> set[Any]:
        return set(ids(recall_in_view(view, "key Atlas", 50, **how)["memories"]))

    assert found(room="zanaroom") == {101, 102, 103}
    assert found(category="zanykind") == {119}
    assert found(as_of="2026-01-03", wing="zanawing") == {101}
    assert found(as_of="2026-01-03T00:00:00Z", wing="zanawing") == {101}
    assert found(as_of="2026-01-02T23:59:59+00:00", wing="zanawing") == set()
    for as_of in ("soon", "", "2026-13-01", "1767398400"):
        with pytest.raises(AskedWronglyError, match="not an ISO-8601 date"):
            found(as_of=as_of)


def test_an_unknown_facet_is_a_warning_with_near_ones_that_may_be_seen(owned_store: Store) -> None:
    def said(view: View, **how: Any) -> dict[str, str]:
        return {w["code"]: w["message"] for w in recall_in_view(view, "key", **how)["warnings"]}

    view = View(owned_store.root, user="ana")
    assert said(view, wing="zanawin") == {
        "unknown_wing": "no memory here has wing 'zanawin'; near: zanawing, zanywing"
    }
    assert list(said(view, wing="zbenwing")) == ["unknown_wing"], "as if it were not there"
    assert said(view, wing="zanywing") == {}
    assert "noctuary mcp --user NAME" in said(View(owned_store.root))["user_required"]


def test_long_contents_are_cut_in_a_recall_and_whole_in_get(home: Path) -> None:
    store = new_store(home / "long")
    whole = "The spare key. " + "ж" * MAX_CONTENT_CHARS
    fits = "key " + "x" * (MAX_CONTENT_CHARS - 4)
    store.publish(renumber([memory(whole), memory(fits)]))
    view = View(store.root)
    found = {m["id"]: m for m in recall_in_view(view, "key")["memories"]}
    assert (found[101]["content"], found[101]["truncated"]) == (whole[:MAX_CONTENT_CHARS], True)
    assert (found[102]["content"], found[102]["truncated"]) == (fits, None)
    with view.open() as seen:
        assert read_item(seen, "101")["content"] == whole


def test_get_returns_every_memory_with_what_it_is(owned_store: Store) -> None:
    with View(owned_store.root, user="ana").open() as seen:

        def item(item_id: str) -> dict[str, Any]:
            return plain(read_item(seen, item_id))

        one = item("102")
        assert (one["id"], one["uri"], one["kind"]) == (102, item_uri(102), "memory")
        assert (one["user"], one["wing"], one["room"]) == ("ana", "zanawing", "zanaroom")
        assert one["superseded_by"] == 103
        assert "supersedes" not in one
        assert item("103")["supersedes"] == [102]
        assert "superseded_by" not in item("101"), "its successor is ben's"
        assert one["created_at"] == "2026-01-04T00:00:00+00:00"
        assert set(one["concepts"]) >= {"Atlas migration", "Nina", "atlas"}
        turn = item("105")
        assert turn["session_id"] == "zanasession"
        summary = item(turn["summarized_by"])
        assert (summary["kind"], summary["uri"]) == ("summary", cluster_uri(summary["id"]))
        assert summary["sources"] == [104, 105, 106, 107]
        assert "summarized_by" not in item("109"), "the last turns are kept as they are"


def test_an_unknown_id_is_a_sentence(owned_store: Store) -> None:
    with View(owned_store.root, user="ana").open() as seen:
        for item in ("", "999", "0101", "101 ", "nope", "a\0b", "\udcff", "x" * 9999):
            with pytest.raises(UnknownItemError, match="there is no memory"):
                read_item(seen, item)
            with pytest.raises(UnknownItemError, match="there is no memory"):
                relate(seen, item, None, 5)
            with pytest.raises(UnknownItemError, match=r"no summary or|not text"):
                read_cluster(seen, item)


def test_an_archived_memory_says_what_stands_for_it(owned_store: Store) -> None:
    archive(Recaller.open(owned_store.root), {"102": "103"})
    with View(owned_store.root, user="ana").open() as seen:
        assert read_item(seen, "102")["archived_behind"] == 103
        assert read_item(seen, "103")["archived_behind"] is None


def test_a_cluster_is_its_summary_and_all_its_turns(owned_store: Store) -> None:
    with View(owned_store.root, user="ana").open() as seen:
        summary_id = read_item(seen, "105")["summarized_by"]
        found = read_cluster(seen, summary_id)
        same = expand(summary_id, user="ana", store=str(owned_store.root)).to_json()
        assert {name: found[name] for name in same if name != "parents"} == {
            name: value for name, value in same.items() if name != "parents"
        }
        assert found["session_id"] == "zanasession"
        assert read_cluster(seen, found["cluster_id"]) == found, "by the cluster's own id as well"
        with pytest.raises(UnknownItemError):
            read_cluster(seen, "101")
        answer = relate(seen, summary_id, None, 50)
        assert ids(answer["memories"]) == [104, 105, 106, 107]
        assert {m["relation"] for m in answer["memories"]} == {"summarizes"}


def naive_neighbours(seen: Seen, position: int) -> set[int]:
    """Every memory that a step that holds joins with this one, read edge by edge."""
    edges = seen.recaller.reader.graph_edges
    found: set[int] = set()
    for source in range(seen.recaller.reader.count):
        for i in range(int(edges.indptr[source]), int(edges.indptr[source + 1])):
            ends = {source, int(edges.targets[i])}
            if position in ends and edges.valid_to_us[i] == OPEN_END_US:
                found |= ends - {position}
    return {p for p in found if seen.allowed[p]}


@pytest.mark.parametrize("user", [None, "ana"])
def test_related_is_every_step_from_or_to_a_memory(owned_store: Store, user: str | None) -> None:
    with View(owned_store.root, user=user).open() as seen:
        reader = seen.recaller.reader
        for position in np.flatnonzero(seen.allowed).tolist():
            (item,) = reader.public_ids([position]).values()
            answer = relate(seen, str(item), None, 50)
            expected = naive_neighbours(seen, position)
            replaced = {
                m["id"] for m in answer["memories"] if m["relation"].startswith("supersede")
            }
            others = reader.public_ids(sorted(expected)).values()
            assert set(ids(answer["memories"])) == set(others) | replaced
            assert answer["totals"]["memories"] == len(answer["memories"])
            assert len(set(ids(answer["memories"]))) == len(answer["memories"])
            weights = [
                m["weight"] for m in answer["memories"] if m["weight"] and m["id"] not in replaced
            ]
            assert weights == sorted(weights, reverse=True)


def test_related_says_how_and_over_what(owned_store: Store) -> None:
    with View(owned_store.root, user="ana").open() as seen:
        first = relate(seen, "102", None, 50)["memories"][0]
        assert (first["id"], first["relation"], first["direction"]) == (103, "superseded_by", "out")
        assert relate(seen, "103", None, 50)["memories"][0]["relation"] == "supersedes"
        turn = {m["id"]: m for m in relate(seen, "105", None, 50)["memories"]}
        assert turn[106]["relation"] in ("next_turn", "previous_turn")
        answer = relate(seen, "102", None, 50)
        assert {c["name"] for c in answer["neighbours"]} >= {"Atlas migration", "Nina"}
        over = {m["concept"] for m in answer["memories"] if m["relation"].startswith("mentions")}
        assert over & {"atlas", "Atlas", "Atlas migration", "Nina"}


def test_lists_are_cut_and_totals_are_not(owned_store: Store) -> None:
    with View(owned_store.root, user="ana").open() as seen:
        for about in (("102", None), (None, "atlas")):
            whole, cut = relate(seen, *about, limit=50), relate(seen, *about, limit=1)
            assert cut["totals"] == whole["totals"]
            assert cut["memories"] == whole["memories"][:1]
            assert cut["neighbours"] == whole["neighbours"][:1]
            assert whole["totals"]["memories"] > 1
        for about in ((None, None), ("101", "atlas")):
            with pytest.raises(AskedWronglyError, match="either"):
                relate(seen, *about, 5)
        sent = plain(read_item(seen, "119"))
        assert None not in sent.values(), "nothing empty is sent"
        assert {"truncated", "sources", "user", "superseded_by"}.isdisjoint(sent)


def test_a_concept_is_found_by_any_of_its_spellings(owned_store: Store) -> None:
    with View(owned_store.root, user="ana").open() as seen:
        answers = [relate(seen, None, name, 50) for name in ("atlas", "ATLAS", " Atlas ")]
        assert answers[0] == answers[1] == answers[2]
        assert "atlas" in answers[0]["concept"]["name"].lower()
        # Six memories of ana and of nobody hold it; ben's three do not count.
        assert answers[0]["totals"]["memories"] == 6
        with pytest.raises(UnknownItemError, match=r"'atlsa'; near: .*[Aa]tlas"):
            relate(seen, None, "atlsa", 5)
        with pytest.raises(UnknownItemError, match="no concept here"):
            relate(seen, None, "\udcff", 5)


def test_a_summary_of_which_one_turn_is_hidden_does_not_exist(owned_store: Store) -> None:
    """No night summarises across users or wings; if one did, this would still keep them apart."""
    with View(owned_store.root, user="ana").open() as seen:
        summary_id = read_item(seen, "105")["summarized_by"]
        assert summary_id is not None
        allowed = seen.allowed.copy()
        allowed[seen.find("107")] = False
        partly = seen._replace(allowed=allowed)
        assert read_item(partly, "105")["summarized_by"] is None
        assert partly.position_of(summary_id) is None
        for read in (read_item, read_cluster):
            with pytest.raises(UnknownItemError):
                read(partly, summary_id)


def test_a_step_that_has_ended_joins_nothing(owned_store: Store) -> None:
    with View(owned_store.root).open() as seen, seen.graph() as (source, _):
        position = seen.find("123")
        before = {joined.position for joined in joined_with(source, position)}
        assert len(before) >= 2
        ended = source.steps["valid_to_us"].copy()
        gone = min(before)
        between = np.isin(source.step_sources, [position, gone])
        between &= np.isin(source.steps["targets"], [position, gone])
        ended[between] = 5
        later = replace(source, steps={**source.steps, "valid_to_us": ended})
        assert {joined.position for joined in joined_with(later, position)} == before - {gone}


def test_the_first_store_that_is_found_stays_the_store_and_a_guess_is_said(
    home: Path, plain_store: Store
) -> None:
    view = View()
    assert view.store() == plain_store.root
    other = new_store(home / "newer")
    other.publish(household())
    guessed = View()
    assert guessed.store() == other.root, "which published last"
    assert view.store() == plain_store.root
    assert [w["code"] for w in read_state(guessed)["warnings"]] == ["store_guessed"]
    answer = recall_in_view(guessed, "key")
    assert [w["code"] for w in answer["warnings"] if w["code"] == "store_guessed"] == [
        "store_guessed"
    ]
    assert [w["code"] for w in read_state(View("newer"))["warnings"]] == []


def test_a_store_that_comes_later_is_found_then(home: Path) -> None:
    view = View()
    with pytest.raises(SnapshotMissingError, match="noctuary nightly"):
        view.store()
    assert read_state(view)["warnings"][0]["code"] == "no_snapshot"
    answer = recall_in_view(view, "key")
    assert (answer["memories"], [w["code"] for w in answer["warnings"]]) == ([], ["no_snapshot"])
    new_store(home / "late").publish(household())
    assert read_state(view)["counts"]["memories"] == 12, "two of the fourteen belong to users"
    answer = recall_in_view(view, "key")
    assert answer["memories"]


def test_a_new_snapshot_answers_and_the_old_one_s_files_are_closed(plain_store: Store) -> None:
    view = View(plain_store.root)
    with view.open() as seen:
        first = seen.recaller.snapshot_id
    del seen
    folder = str(plain_store.snapshot(first))
    assert any(name.startswith(folder) for name in open_files())
    second = plain_store.publish(renumber([memory("A new key.")]))
    gc.disable()
    try:
        with view.open() as seen:
            assert seen.recaller.snapshot_id == second
            assert seen.recaller.reader.count == 1
        assert [name for name in open_files() if name.startswith(folder)] == []
    finally:
        gc.enable()


def test_what_was_opened_stays_what_it_is_while_another_is_published(plain_store: Store) -> None:
    with View(plain_store.root).open() as seen:
        plain_store.publish(renumber([memory("A new key.")]))
        position = seen.find("101")
        assert "spare key" in seen.recaller.reader.describe([position])[position]["content"]


def test_damage_is_said_as_what_it_is(plain_store: Store) -> None:
    said = r"KeyError in .*: run `noctuary doctor`"
    with pytest.raises(SnapshotCorruptError, match=said), View(plain_store.root).open():
        raise KeyError("somewhere inside")


def test_an_unreadable_snapshot_is_a_warning_or_a_sentence(plain_store: Store) -> None:
    view = View(plain_store.root)
    (snapshot,) = plain_store.paths.snapshots.iterdir()
    (snapshot / layout.ROWS_FILE).write_bytes(b"")
    with pytest.raises(StoreError), view.open():
        pass
    assert [w["code"] for w in read_state(view)["warnings"]] == ["no_snapshot"]
    answer = recall_in_view(view, "key", room="hall")
    assert [w["code"] for w in answer["warnings"]] == ["no_snapshot"]


def test_a_wing_s_server_may_show_what_holds_for_the_person_too(plain_store: Store) -> None:
    texts = (("mill", "The port is open."), ("lark", "User prefers port 7."), ("lark", "A port."))
    plain_store.publish(renumber([memory(text, wing=wing) for wing, text in texts]))

    def seen(view: View, **asked: Any) -> set[Any]:
        found = recall_in_view(view, "port", 10, **asked)["memories"]
        with view.open() as opened:
            readable = {key for key in (101, 102, 103) if opened.position_of(str(key)) is not None}
        assert {memory["id"] for memory in found} <= readable
        return {memory["id"] for memory in found}

    assert seen(View(plain_store.root, wing="mill")) == {101}
    assert seen(View(plain_store.root, wing="mill", person=True)) == {101, 102}
    assert seen(View(plain_store.root, person=True), wing="mill") == {101, 102}
    assert seen(View(plain_store.root, person=True)) == {101, 102, 103}


def test_a_call_may_narrow_and_never_widen() -> None:
    assert [View().narrowed_to(asked) for asked in (None, "home")] == [None, "home"]
    assert [View(wing="home").narrowed_to(asked) for asked in (None, "home")] == ["home"] * 2
    for asked in ("work", "", "Home"):
        with pytest.raises(AskedWronglyError, match="leave wing out"):
            View(wing="home").narrowed_to(asked)


def test_state_names_the_night_and_the_encoder(dense_store: Store) -> None:
    found = read_state(View(dense_store.root, user="ana"))
    assert found["encoder"] is not None
    assert found["last_night_hours"] is not None
    assert found["last_night_hours"] < 1
    assert found["user"] == "ana"
    assert found["warnings"] == []
    os.utime(dense_store.paths.last_night, (1, 1))
    assert [w["code"] for w in read_state(View(dense_store.root))["warnings"]] == ["stale_snapshot"]
