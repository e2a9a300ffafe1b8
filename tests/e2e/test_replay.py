"""Kept recalls as a person meets them: separate processes, a night in between, a full disk."""

from __future__ import annotations

import json
import resource
import sqlite3
import stat
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

from noctuary.recall.api import recall
from noctuary.recall.replay import list_packets
from tests.support.store import Store, memory, renumber
from tests.support.usage import count_retrievals

_NOCTUARY = [sys.executable, "-m", "noctuary.cli.main"]
_KEEP = ("--set", "replay_log=true", "--user", "ana")


def noctuary(store: Store, *arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
    words = [*_NOCTUARY, *arguments, "--store", str(store.root)]
    return subprocess.run(words, capture_output=True, text=True, check=False, **options)


def kept(store: Store) -> list[dict[str, Any]]:
    return json.loads(noctuary(store, "why", "--replay", "--json").stdout)["packets"]


def test_a_kept_recall_is_run_again_after_other_nights_and_other_use(dense_store: Store) -> None:
    count_retrievals(dense_store, [["101", "104"], ["101", "103"]])
    asked = noctuary(dense_store, "recall", "Nina key", "-k", "4", "--json", *_KEEP)
    result = json.loads(asked.stdout)
    assert [w["code"] for w in result["warnings"]] == []
    (packet,) = kept(dense_store)
    assert packet["snapshot_id"] == result["snapshot_id"]
    assert stat.S_IMODE(dense_store.paths.replays.stat().st_mode) == 0o600
    dense_store.publish(renumber([memory("Another spare key.")], 900))
    count_retrievals(dense_store, [["900"]] * 3)
    done = noctuary(dense_store, "why", "--replay", packet["replay_id"])
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "identical: 4 memories, same order, same scores\n"


def test_a_changed_packet_is_found_out(dense_store: Store) -> None:
    noctuary(dense_store, "recall", "Nina key", *_KEEP)
    (packet,) = list_packets(dense_store.paths.replays, 1).packets
    packet["results"][0]["final_score"] = 0.125
    with closing(sqlite3.connect(dense_store.paths.replays)) as log, log:
        log.execute("UPDATE packets SET packet = ?", [json.dumps(packet)])
    done = noctuary(dense_store, "why", "--replay", packet["replay_id"])
    assert done.returncode == 1
    assert "another score: 0.125 then" in done.stdout


def test_nothing_is_kept_unless_a_profile_says_so(dense_store: Store, home: Path) -> None:
    assert noctuary(dense_store, "recall", "Nina key", "--user", "ana").returncode == 0
    assert noctuary(dense_store, "recall", "Nina key", "--dry-run", *_KEEP).returncode == 0
    assert kept(dense_store) == []
    assert not dense_store.paths.replays.exists()
    (home / "noctuary.toml").write_text("[profiles.default]\nreplay_log = true\n")
    assert noctuary(dense_store, "recall", "Nina key", "--user", "ana").returncode == 0
    assert len(kept(dense_store)) == 1


def test_a_full_disk_never_fails_a_recall(dense_store: Store) -> None:
    noctuary(dense_store, "recall", "Nina key", *_KEEP)

    def fill_disk() -> None:
        _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (4_096, hard))

    done = noctuary(dense_store, "recall", "Nina key", *_KEEP, preexec_fn=fill_disk)
    assert done.returncode == 0
    assert "[101]" in done.stdout
    assert "! replay_log: " in done.stderr
    assert len(kept(dense_store)) == 1


def test_a_question_that_reads_like_a_secret_is_answered_and_not_kept(
    dense_store: Store,
) -> None:
    flags: dict[str, Any] = {"replay_log": True, "query_expansion_enabled": True}
    secret = "key door password: hunter2-Tr0ub4dor&3"
    result = recall(secret, profile=flags)
    assert result.memories
    assert "query_withheld" in {w.code for w in result.warnings}
    assert not dense_store.paths.replays.exists()
    assert not dense_store.paths.queries.exists()
    recall("key door", profile=flags)
    assert dense_store.paths.replays.exists()
    assert dense_store.paths.queries.exists()
