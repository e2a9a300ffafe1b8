from __future__ import annotations

import json
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from bench.peers import __main__ as peers
from bench.peers import runner
from bench.peers.measure import Measured
from bench.suite.loading import LoadedSet, load_set
from bench.tables.peers import write_peers
from tests.support.labelled_set import write_lines, write_set

ROWS: list[dict[str, Any]] = [
    {"id": 1, "content": "The spare key hangs behind the blue door", "wing": "a"},
    {"id": 2, "content": "Nadia feeds the parrot", "wing": "a"},
    {"id": 3, "content": "Blueberries ripen while the parrot bites the postman", "wing": "b"},
    {"id": 4, "content": "我们明天去图书馆看书", "wing": "b"},
]
SESSION_OF = {"1": "s1", "2": "s2", "3": "s2", "4": "s3"}
QUERIES: list[dict[str, Any]] = [
    {"query_id": "key", "text": 'Is there a "spare" key?', "relevant_ids": [1], "wing": "a"},
    {"query_id": "blue", "text": "blue", "relevant_ids": [1, 3], "wing": "b"},
    {"query_id": "parrot", "text": "parrot", "relevant_ids": [2, 3], "wing": "b"},
    {"query_id": "library", "text": "图书馆", "relevant_ids": [4], "wing": "b"},
    {"query_id": "none", "text": "?!", "relevant_ids": [4], "wing": "b"},
]
COSTS = {
    "build_seconds": 1.0,
    "build_peak_bytes": 10**7,
    "ask_peak_bytes": 10**7,
    "store_bytes": 10**6,
    "llm_tokens": 0,
    "warnings": [],
    "commit": "0123456789abcdef",
    "dirty": False,
    "load_average_1m": 0.5,
}


@pytest.fixture
def loaded(tmp_path: Path) -> LoadedSet:
    rows = [{**row, "session_id": SESSION_OF[str(row["id"])]} for row in ROWS]
    directory = write_set(tmp_path / "locomo", rows)
    write_lines(directory / "queries.jsonl", QUERIES)
    return load_set(directory)


def ask(peer: str, folder: Path, depth: int = 4) -> list[dict[str, Any]]:
    """Let a peer build and answer in processes of its own."""
    given, store = folder / "given", folder / peer
    given.mkdir(exist_ok=True)
    store.mkdir()
    write_lines(given / "corpus.jsonl", [{**row, "id": str(row["id"])} for row in ROWS])
    write_lines(given / "queries.jsonl", QUERIES)
    command = [sys.executable, "-P", str(Path(runner.__file__))]
    for action in ("build", "ask"):
        words = [*command, action, peer, str(given), str(store), str(depth)]
        done = subprocess.run(words, capture_output=True, text=True, check=True)
    *answers, costs = map(json.loads, done.stdout.splitlines())  # pyright: ignore[reportPossiblyUnboundVariable]
    assert 10**6 < costs["peak_bytes"] < 10**9
    return answers


@pytest.mark.parametrize(
    ("peer", "everywhere", "in_wing"),
    [
        (
            "fts5_unicode61",
            {"key": ["1"], "blue": ["1"], "parrot": ["2", "3"]},
            {"key": ["1"], "parrot": ["3"]},
        ),
        (
            "fts5_trigram",
            {
                "key": ["1", "2", "3"],
                "blue": ["1", "3"],
                "parrot": ["2", "3", "1"],
                "library": ["4"],
            },
            {"key": ["1", "2"], "blue": ["3"], "parrot": ["3"], "library": ["4"]},
        ),
    ],
)
def test_a_peer_answers_from_what_another_process_stored(
    tmp_path: Path, peer: str, everywhere: dict[str, list[str]], in_wing: dict[str, list[str]]
) -> None:
    answers = ask(peer, tmp_path)
    found = {(a["scope"], a["query_id"]): a["ids"] for a in answers}
    for scope, expected in (("all", everywhere), ("wing", in_wing)):
        for query in QUERIES:
            name = query["query_id"]
            assert found.pop((scope, name)) == expected.get(name, []), (scope, name)
    assert not found
    assert all(a["deep"] == a["ids"] and a["ms"] > 0 for a in answers)


def test_a_peer_cannot_leave_the_machine() -> None:
    lines = (
        "import socket",
        "from bench.peers.runner import refuse_connections",
        "refuse_connections()",
        "socket.create_connection(('192.0.2.1', 80), 5)",
    )
    done = subprocess.run(
        [sys.executable, "-c", "\n".join(lines)], capture_output=True, text=True, check=False
    )
    assert "refused: the benchmark is offline, and ('192.0.2.1', 80) was asked for" in done.stderr


def test_a_session_has_the_score_of_its_best_memory() -> None:
    draw = random.Random(7)
    for _ in range(200):
        scores = {str(i): draw.random() for i in range(draw.randint(1, 60))}
        session_of = {i: f"s{draw.randint(0, 14)}" for i in scores}
        best: dict[str, float] = {}
        for memory_id, score in scores.items():
            session = session_of[memory_id]
            best[session] = max(best.get(session, 0.0), score)
        expected = sorted(best, key=lambda session: -best[session])[:10]
        ranking = sorted(scores, key=lambda memory_id: -scores[memory_id])
        assert list(peers.rank_sessions(ranking, session_of)) == expected


def test_one_arm_measured_again_keeps_the_others(loaded: LoadedSet, tmp_path: Path) -> None:
    out, both = tmp_path / "docs", ("fts5_unicode61", "fts5_trigram")
    answers = {peer: ask(peer, tmp_path) for peer in both}
    busy = {**COSTS, "load_average_1m": 9.5}
    measured = {p: Measured(c, answers[p]) for p, c in zip(both, (COSTS, busy), strict=True)}
    peers.merge(loaded, measured, out, 2.0)
    # What answers as trigrams do now stands for noctuary; the other arm is not asked again.
    ours = {"noctuary": Measured(COSTS, answers["fts5_trigram"]), "mem0": "no wheel for this"}
    document = peers.merge(loaded, ours, out, None)
    one = document["sets"]["locomo"]
    assert list(one["measured"]) == ["noctuary", *both]
    assert one["encode_seconds"] == 2.0
    assert one["stopped"] == {"mem0": "no wheel for this"}
    # The machine was busy for one of them: its times are too long to be said.
    assert {p for p in both if "p50_ms" in one["measured"][p]} == {"fts5_unicode61"}
    means = {scope: found["means"] for scope, found in one["scopes"].items()}
    assert set(means) == {"all", "wing", "session_all", "session_wing"}
    recall = {peer: found["recall@5"]["mean"] for peer, found in means["all"].items()}
    # Of five questions words answer key and parrot, and half of blue; trigrams all but none.
    expected = {"noctuary": 0.8, "fts5_unicode61": 0.5, "fts5_trigram": 0.8}
    assert recall == pytest.approx(expected)
    gain = one["scopes"]["all"]["differences"]["fts5_unicode61"]["recall@5"]
    assert (gain["mean"], gain["wins"]) == (pytest.approx(0.3), 2)
    # Both parrots are of one session, so its first place is all there is to find.
    assert means["session_all"]["fts5_unicode61"]["mrr@10"]["mean"] == pytest.approx(3 / 5)
    page = "\n\n".join(write_peers(out / "json"))
    assert "- `mem0`: no wheel for this" in page
    assert "| locomo (5) | **noctuary** | 0.800 [" in page
    assert "| locomo | fts5_trigram |  | 1.0 | 10 / 10 | not timed | 0 | 9.5 |" in page
    # Words find one of two birds: any, half, and not all.
    assert "| locomo | whole corpus | fts5_unicode61 | 0.600 | 0.500 | 0.400 |" in page
