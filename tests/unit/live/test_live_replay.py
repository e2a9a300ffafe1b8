"""A recall with live rows is replayed exactly, without the store."""

from __future__ import annotations

import json
from typing import Any

import pytest

from noctuary.recall.api import recall
from noctuary.recall.replay import list_packets, replay
from tests.support.live import Cache
from tests.support.store import Store


def packet_of(store: Store, query: str, **how: Any) -> dict[str, Any]:
    recall(query, profile={"replay_log": True, **how.pop("flags", {})}, **how)
    return list_packets(store.paths.replays, 1).packets[-1]


@pytest.mark.parametrize(
    "flags", [{}, {"fusion": "rrf"}, {"exact_match_bonus": 0.5}, {"query_expansion_enabled": True}]
)
def test_it_replays_exactly_when_the_store_is_gone(
    served_dense: Store, cache: Cache, flags: dict[str, Any]
) -> None:
    cache.add("The spare key was moved to the neighbour.", tags="wing:home")
    cache.edit(2, content="The feline eats four times a day, says the neighbour.")
    cache.delete(8)
    packet = packet_of(served_dense, "spare key neighbour", flags=flags)
    assert {row["id"] for row in packet["results"]} >= {1, 2, 9}
    cache.path.unlink()
    found = replay(served_dense.paths, packet)
    assert found.differences == ()
    assert found.identical


def test_a_packet_holds_no_text_of_a_live_row(served_dense: Store, cache: Cache) -> None:
    cache.add("The zebra sleeps in the conservatory.", expanded_keywords="quagga")
    packet = packet_of(served_dense, "sleeping animal")
    kept = json.dumps(packet)
    assert "zebra" not in kept
    assert "conservatory" not in kept
    assert "quagga" not in kept
    assert packet["world"]["live"]["rows"]


def test_without_live_rows_a_packet_is_as_before(served_dense: Store) -> None:
    packet = packet_of(served_dense, "spare key")
    assert "live" not in packet["world"]
    assert "live_vectors" not in packet["world"]
    assert replay(served_dense.paths, packet).identical


def test_an_unreachable_store_is_replayed_as_such(served_dense: Store, cache: Cache) -> None:
    content = cache.path.read_bytes()
    cache.path.unlink()
    packet = packet_of(served_dense, "spare key")
    assert "live_unreachable" in packet["warnings"]
    cache.path.write_bytes(content)
    assert replay(served_dense.paths, packet).identical
