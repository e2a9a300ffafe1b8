from __future__ import annotations

import json
from datetime import UTC, datetime

from noctuary.recall.result import GraphHit, LegHit, RecalledMemory, RecallResult, RecallWarning

FOUND = RecalledMemory(
    id=7,
    content="钥匙",
    category="fact",
    tags=("a", "b"),
    importance=0.5,
    created_at=datetime(2026, 5, 1, tzinfo=UTC),
    wing=None,
    room=None,
    session_id=None,
    user=None,
    final_score=0.4,
    relevance=0.8,
    lexical=LegHit(1, 2.5),
    graph=GraphHit(
        score=0.1,
        seed_id="s-9",
        relation="next_turn",
        concept=None,
        evidence=("s-9", 4),
        shares={"next_turn": 0.075, "in_session": 0.025},
    ),
)


def test_a_result_survives_json() -> None:
    result = RecallResult(
        query="key",
        memories=(FOUND,),
        warnings=(RecallWarning("code", "text"),),
        phase_timing_ms={"total": 1.5},
        snapshot_id="s",
        store="/x",
        profile={"fusion": "cc"},
    )
    value = json.loads(json.dumps(result.to_json()))
    assert value["warnings"] == [{"code": "code", "message": "text"}]
    assert value["phase_timing_ms"] == {"total": 1.5}
    (memory,) = value["memories"]
    assert memory["created_at"] == "2026-05-01T00:00:00+00:00"
    assert memory["content"] == "钥匙"
    assert memory["tags"] == ["a", "b"]
    assert memory["legs"] == {
        "lexical": {"rank": 1, "score": 2.5},
        "graph": {
            "score": 0.1,
            "seed_id": "s-9",
            "relation": "next_turn",
            "concept": None,
            "evidence": ["s-9", 4],
            "shares": {"next_turn": 0.075, "in_session": 0.025},
        },
    }


def test_an_empty_result_is_complete() -> None:
    value = RecallResult(query="x").to_json()
    assert value == {
        "query": "x",
        "memories": [],
        "warnings": [],
        "phase_timing_ms": {},
        "snapshot_id": None,
        "store": None,
        "profile": {},
        "profile_used": "default",
        "pipeline": {},
    }


def test_the_short_form_tells_warnings_first_and_what_a_terminal_obeys_as_text() -> None:
    missing = RecallWarning("no_snapshot", "run `noctuary nightly` first")
    assert repr(RecallResult(query="key", warnings=(missing,))) == (
        "! no_snapshot: run `noctuary nightly` first\nRecallResult for 'key': 0 memories"
    )
    hostile = FOUND._replace(content="\x1b]0;owned\x07 " + "long " * 200)
    lines = repr(RecallResult(query="key", memories=(FOUND, hostile))).splitlines()
    assert lines[1] == "0.400 [7] '钥匙'"
    assert "\\x1b" in lines[2]
    assert max(map(len, lines)) < 120
    odd = FOUND._replace(id="a\x1b[2J\nb")
    said = RecallWarning("x", "two\nlines\u202e")
    lines = repr(RecallResult(query="key", memories=(odd,), warnings=(said,))).splitlines()
    assert lines[0] == "! x: two\\u000alines\\u202e"
    assert lines[2].startswith("0.400 [a\\u001b[2J\\u000ab] ")
