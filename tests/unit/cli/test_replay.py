from __future__ import annotations

import shutil
from collections.abc import Callable
from typing import Any

import pytest
from click.testing import Result

from noctuary.core.sqlite import append_rows
from noctuary.recall.engine import Recaller
from noctuary.recall.profile import RetrievalProfile
from noctuary.recall.query import Scope
from noctuary.recall.replay import REPLAY_LOG, append_packet, list_packets
from tests.support.replays import log_recall
from tests.support.store import Store, memory, renumber

Run = Callable[..., Result]
RunJson = Callable[..., Any]


def keep(store: Store, query: str, k: int = 3) -> dict[str, Any]:
    """Recall and keep it; the packet."""
    log_recall(
        Recaller.open(store.root),
        query,
        k,
        log_path=store.paths.replays,
        profile=RetrievalProfile(replay_log=True),
        profile_used="default",
        scope=Scope(user="ana"),
    )
    return list_packets(store.paths.replays, 1).packets[0]


def test_without_an_id_the_kept_recalls_are_listed_oldest_first(
    run: Run, run_json: RunJson, dense_store: Store
) -> None:
    first, second = keep(dense_store, "spare key"), keep(dense_store, "x " * 60 + "\udcff", 7)
    lines = run("why", "--replay").stdout.splitlines()
    assert len(lines) == 2
    snapshot = first["snapshot_id"]
    moment = first["made_at"][:19]
    assert lines[0] == f"{first['replay_id']}  {moment}  k 3      3 found  {snapshot}  spare key"
    assert lines[1].endswith(" ...")
    found = run_json("why", "--replay", "--last", "1")
    assert [p["replay_id"] for p in found["packets"]] == [second["replay_id"]]
    assert found["unreadable"] == 0


def test_a_store_that_kept_nothing_says_how_to(
    run: Run, run_json: RunJson, dense_store: Store
) -> None:
    result = run("why", "--replay")
    assert result.exit_code == 0
    assert "--set replay_log=true" in result.stdout
    assert run_json("why", "--replay") == {"packets": [], "unreadable": 0}


def test_a_row_that_holds_no_packet_is_reported(run: Run, dense_store: Store) -> None:
    keep(dense_store, "key")
    append_rows(dense_store.paths.replays, REPLAY_LOG, [("00", '{"format":1,', 12)])
    result = run("why", "--replay")
    assert len(result.stdout.splitlines()) == 1
    assert "! 1 of the last packets cannot be read" in result.stderr


def test_a_replay_is_identical_also_when_a_newer_snapshot_serves(
    run: Run, run_json: RunJson, dense_store: Store
) -> None:
    packet = keep(dense_store, "spare key")
    for _ in range(2):
        result = run("why", "--replay", packet["replay_id"][:6])
        assert result.exit_code == 0
        assert result.stdout == "identical: 3 memories, same order, same scores\n"
        assert result.stderr == ""
        dense_store.publish(renumber([memory("Another spare key.")], 900))
    assert run_json("why", "--replay", packet["replay_id"]) == {
        "replay_id": packet["replay_id"], "made_at": packet["made_at"], "query": "spare key",
        "k": 3, "snapshot_id": packet["snapshot_id"], "results": 3, "identical": True,
        "differences": [], "notes": [], "memories": 3,
    }  # fmt: skip


def test_each_difference_is_a_line_and_the_exit_code_is_1(
    run: Run, run_json: RunJson, dense_store: Store
) -> None:
    packet = keep(dense_store, "spare key")
    packet["replay_id"] = "ffff00000000"
    packet["results"][0]["final_score"] = 0.125
    packet["made_by"] = "0.0.1"
    append_packet(dense_store.paths.replays, packet)
    result = run("why", "--replay", "ffff")
    assert result.exit_code == 1
    assert result.stdout.startswith("[101] has another score: 0.125 then, ")
    assert "! the packet was made by noctuary 0.0.1" in result.stderr
    assert run_json("why", "--replay", "ffff", code=1)["identical"] is False


def test_a_snapshot_that_is_gone_is_a_sentence(run: Run, dense_store: Store) -> None:
    packet = keep(dense_store, "spare key")
    dense_store.publish(renumber([memory("Another spare key.")], 900))
    shutil.rmtree(dense_store.snapshot(packet["snapshot_id"]))
    result = run("why", "--replay", packet["replay_id"])
    assert result.exit_code == 1
    assert f"snapshot {packet['snapshot_id']} is gone" in result.stdout


@pytest.mark.parametrize("wrong", ["abc", "ж", "\udcff", '"'])
def test_an_id_that_is_not_kept_is_exit_code_1(
    run: Run, run_json: RunJson, dense_store: Store, wrong: str
) -> None:
    keep(dense_store, "key")
    result = run("why", "--replay", wrong)
    assert result.exit_code == 1
    assert "noctuary: no packet" in result.stderr
    assert run_json("why", "--replay", wrong, code=1)["error"] == "StoreError"


def test_no_store_is_exit_code_1(run: Run, home: Any) -> None:
    assert run("why", "--replay").exit_code == 1


def test_a_log_that_cannot_be_read_is_a_sentence(run: Run, dense_store: Store) -> None:
    dense_store.paths.replays.mkdir()
    for arguments in ([], ["abc"]):
        result = run("why", "--replay", *arguments)
        assert result.exit_code == 1
        assert result.stderr.startswith("noctuary: ")
