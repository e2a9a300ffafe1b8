from __future__ import annotations

import copy
import shutil
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from noctuary.core.errors import StoreError
from noctuary.core.types import register_hook
from noctuary.recall.engine import Recaller
from noctuary.recall.query import Scope
from noctuary.recall.replay import replay, rerun
from tests.support.replays import EVERYTHING, KEPT, forget_users, keep, last_packet, use
from tests.support.store import Store, memory, renumber

Damage = Callable[[dict[str, Any]], Any]


def first_event(packet: dict[str, Any], phase: str) -> dict[str, Any]:
    events = packet["score_events"][str(packet["results"][0]["id"])]
    return next(e for e in events if e["phase"] == phase)


CHANGES: list[tuple[Damage, str]] = [
    (lambda p: p["results"].pop(0), "[101] is new, at place 1 (0.485)"),
    (
        lambda p: p["results"].insert(0, {"id": 999, "final_score": 0.75}),
        "[999] does not come back; it was at place 1 (0.75)",
    ),
    (lambda p: p["results"].reverse(), "[101] moved from place 2 to place 1"),
    (
        lambda p: p["results"][0].update(final_score=0.25),
        "[101] has another score: 0.25 then, 0.485 now (changed by +0.235)",
    ),
    (
        lambda p: first_event(p, "dense").update(delta=0.25),
        "[101] dense: 0.25 then, 0.5 now (changed by +0.25)",
    ),
    (
        lambda p: first_event(p, "dense").update(phase="ltp"),
        "[101] ltp: 0.5 then, 0 now (changed by -0.5)",
    ),
    (
        lambda p: first_event(p, "dense").update(reason="luck"),
        "[101] dense: the reason was 'luck', now it is 'dense rank 1'",
    ),
    (
        lambda p: p["warnings"].append("dense_unavailable"),
        "the warning dense_unavailable came then and does not now",
    ),
    (
        lambda p: p.update(warnings=[]),
        "the warning user_required comes now and did not then",
    ),
    (
        lambda p: p.update(model_guard_result="UNKNOWN"),
        "the model guard said UNKNOWN, now it says MATCH",
    ),
    (
        lambda p: p["world"].update(encoder=None),
        "the model guard said MATCH, now it says UNKNOWN",
    ),
    (
        lambda p: p["world"].update(vectors={}),
        "the warning dense_unavailable comes now and did not then",
    ),
    (lambda p: p.update(k=1), "[104] does not come back; it was at place 2 (0.196635)"),
]


@pytest.mark.parametrize(("change", "said"), CHANGES)
def test_a_changed_packet_is_told_from_the_recall(
    dense_store: Store, change: Damage, said: str
) -> None:
    keep(dense_store, "Nina key", 2)
    packet = last_packet(dense_store)
    assert replay(dense_store.paths, copy.deepcopy(packet)).identical
    change(packet)
    compared = replay(dense_store.paths, packet)
    assert not compared.identical
    assert said in compared.differences


def test_a_recorded_use_that_is_changed_is_a_difference(dense_store: Store) -> None:
    forget_users(dense_store)
    use(dense_store)
    keep(dense_store, "Nina key", 2, profile=KEPT.replaced(ltp_enabled=True))
    packet = last_packet(dense_store)
    assert "101" in packet["world"]["usage"]
    assert "102" not in packet["world"]["usage"], "memories never recalled are not kept"
    packet["world"]["usage"] = {}
    differences = replay(dense_store.paths, packet).differences
    assert any(d.startswith("[101] ltp: ") for d in differences)


def test_a_snapshot_that_is_gone_is_named_with_what_to_do(dense_store: Store) -> None:
    keep(dense_store, "key")
    packet = last_packet(dense_store)
    shutil.rmtree(dense_store.snapshot(packet["snapshot_id"]))
    (said,) = replay(dense_store.paths, packet).differences
    assert packet["snapshot_id"] in said
    assert "snapshot.keep" in said
    escaping = {**packet, "snapshot_id": "../.."}
    assert "is gone" in replay(dense_store.paths, escaping).differences[0]


def test_another_snapshot_is_a_difference(dense_store: Store) -> None:
    keep(dense_store, "key")
    packet = last_packet(dense_store)
    dense_store.publish(renumber([memory("Another spare key.")]))
    recaller = Recaller.open(dense_store.root)
    said = rerun(recaller, packet).differences[0]
    assert said == f"run against snapshot {recaller.snapshot_id} instead of {packet['snapshot_id']}"


def test_a_deadline_is_not_replayed_and_that_is_said(dense_store: Store) -> None:
    result = keep(dense_store, "Nina key", deadline_ms=0.0)
    assert "deadline_dense" in {w.code for w in result.warnings}
    compared = replay(dense_store.paths, last_packet(dense_store))
    assert "the warning deadline_dense came then and does not now" in compared.differences
    assert any("deadlines are not replayed" in note for note in compared.notes)


def test_a_missing_encoder_replays_as_the_same_fault(dense_store: Store) -> None:
    (encoder,) = dense_store.paths.encoders.iterdir()
    hidden = encoder.with_name("hidden")
    encoder.rename(hidden)
    then = keep(dense_store, "key")
    assert "dense_unavailable" in {w.code for w in then.warnings}
    hidden.rename(encoder)
    packet = last_packet(dense_store)
    assert packet["model_guard_result"] == "UNKNOWN"
    assert replay(dense_store.paths, packet).identical


def test_a_damaged_query_log_replays_with_its_warning(dense_store: Store) -> None:
    dense_store.paths.queries.write_bytes(b"no database" * 100)
    then = keep(dense_store, "key", profile=EVERYTHING, scope=Scope(user="ana"))
    assert [w.code for w in then.warnings] == ["query_log"]
    dense_store.paths.queries.unlink()
    assert replay(dense_store.paths, last_packet(dense_store)).identical


def test_a_store_without_vectors_replays(plain_store: Store) -> None:
    keep(plain_store, "morning flight")
    assert replay(plain_store.paths, last_packet(plain_store)).identical


def test_a_hook_that_fails_is_no_difference(dense_store: Store) -> None:
    def fail(_: dict[str, Any]) -> None:
        raise RuntimeError("no")

    remove = register_hook("post_model_guard", fail)
    try:
        assert "hook_failed" in {w.code for w in keep(dense_store, "key").warnings}
    finally:
        remove()
    assert replay(dense_store.paths, last_packet(dense_store)).identical


DAMAGE: list[Damage] = [
    lambda p: p.update(format=3),
    lambda p: p.pop("world"),
    lambda p: p["world"].pop("vectors"),
    lambda p: p["profile"].update(depth="many"),
    lambda p: p.update(results=[7]),
    lambda p: p["scope"].update(as_of="yesterday"),
]


@pytest.mark.parametrize("change", DAMAGE)
def test_a_damaged_packet_is_one_sentence(dense_store: Store, change: Damage) -> None:
    keep(dense_store, "key")
    packet = last_packet(dense_store)
    change(packet)
    with pytest.raises(StoreError, match=packet["replay_id"]):
        replay(dense_store.paths, packet)


def test_flags_of_another_version_are_said(dense_store: Store) -> None:
    keep(dense_store, "key")
    packet = last_packet(dense_store)
    packet["profile"]["flag_of_tomorrow"] = True
    packet["made_by"] = "99.0"
    compared = replay(dense_store.paths, packet)
    assert compared.identical
    assert any("flag_of_tomorrow" in note for note in compared.notes)
    assert any("noctuary 99.0" in note for note in compared.notes)


def test_a_log_that_cannot_be_written_is_a_warning_and_no_more(dense_store: Store) -> None:
    dense_store.paths.replays.mkdir()
    result = keep(dense_store, "spare key", scope=Scope(user="ana"))
    assert [w.code for w in result.warnings] == ["replay_log"]
    assert result.memories[0].id == 101


def test_scores_are_kept_to_the_last_bit(dense_store: Store) -> None:
    result = keep(dense_store, "Nina key")
    packet = last_packet(dense_store)
    kept = np.array([row["final_score"] for row in packet["results"]])
    assert kept.tobytes() == np.array([m.final_score for m in result.memories]).tobytes()
