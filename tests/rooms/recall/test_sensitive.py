from __future__ import annotations

import copy
import hashlib
import json
import logging
import math
import pickle
import sqlite3
import traceback
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import noctuary
from noctuary import recall_sensitive
from noctuary.core.errors import ConfigError, SourceError, StoreError
from noctuary.core.store import name_source
from noctuary.lexical.search import K1, B
from noctuary.recall import sensitive as sensitive_rows
from noctuary.recall.sensitive import score_documents
from noctuary.snapshot.forget import apply_forget, plan_forget
from tests.support.claude_memory import make_sqlite
from tests.support.secretive import (
    CANARIES,
    PUBLIC,
    REASONS,
    SENSITIVE,
    VAULT_COLUMNS,
    publish_source,
    write_lines,
)
from tests.support.store import Store

MakeDatabase = Callable[..., str]


@pytest.fixture
def allowed(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sensitive recall is switched on."""
    monkeypatch.setenv("NOCTUARY_SENSITIVE_RECALL", "true")


@pytest.fixture
def source(tmp_path: Path, empty_store: Store) -> Path:
    """A SQLite store with rows of every kind, whose snapshot serves."""
    rows = (*PUBLIC, *SENSITIVE)
    made = make_sqlite(tmp_path / "memory.db", rows, extra_columns=VAULT_COLUMNS)
    publish_source(empty_store, made)
    return made


def digests(*places: Path) -> dict[str, str]:
    files = [f for p in places for f in (p.rglob("*") if p.is_dir() else (p,)) if f.is_file()]
    return {str(f): hashlib.sha256(f.read_bytes()).hexdigest() for f in files}


def ids(answer: Any) -> list[int]:
    return [int(m.memory_id) for m in answer.memories]


def test_it_is_off_and_says_how_to_switch_it_on_and_needs_a_published_store(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ConfigError, match=r"\[sensitive\].*NOCTUARY_SENSITIVE_RECALL=true"):
        recall_sensitive("alarm code")
    monkeypatch.setenv("NOCTUARY_SENSITIVE_RECALL", "true")
    with pytest.raises(StoreError, match="no published store"):
        recall_sensitive("alarm code")


@pytest.mark.usefixtures("source")
def test_sensitive_rows_of_every_kind_are_found_by_their_words(allowed: None) -> None:
    answer = recall_sensitive("alarm code")
    assert answer.searched == len(SENSITIVE)
    assert set(ids(answer)) == {11, 14, 15, 17, 18}
    assert {int(m.memory_id): m.reason for m in answer.memories}.items() <= REASONS.items()
    scores = [m.score for m in answer.memories]
    assert scores == sorted(scores, reverse=True)
    assert all(score > 0 for score in scores)
    for word, row in (("safe", 12), ("diary", 13), ("gate", 14), ("elsewhere", 16)):
        assert ids(recall_sensitive(word)) == [row]
    vaulted = next(m for m in answer.memories if m.memory_id == "15")
    assert vaulted.vault_path == "kv/CANARYPATH"
    assert vaulted.content == SENSITIVE[4]["content"]


def test_a_forgotten_row_that_is_marked_later_is_not_found(
    source: Path, empty_store: Store, allowed: None
) -> None:
    apply_forget(plan_forget(ids=[1]))
    with closing(sqlite3.connect(source)) as db, db:
        db.execute("UPDATE memories SET is_sensitive = 1 WHERE id IN (1, 2)")
    assert ids(recall_sensitive("spare key pantry")) == [15]
    answer = recall_sensitive("alarm Brandt March")
    assert 2 in ids(answer), "marked alike, and not forgotten"
    assert answer.searched == len(SENSITIVE) + 1
    (empty_store.root / "forgotten.json").write_text("{}")
    with pytest.raises(StoreError, match="nothing is shown without it"):
        recall_sensitive("alarm")


@pytest.mark.usefixtures("source")
def test_what_is_not_sensitive_is_never_in_it_and_k_bounds_the_answer(allowed: None) -> None:
    answer = recall_sensitive("spare key blue door pantry Brandt Harbour", k=100)
    assert ids(answer) == [15], "only the word `spare` of a sensitive row"
    assert recall_sensitive("Brandt").memories == ()
    assert [len(recall_sensitive("code", k=k).memories) for k in (2, 0)] == [2, 0]
    with pytest.raises(ValueError, match="k must be at least 0"):
        recall_sensitive("code", k=-1)


def test_users_are_denied_by_default_and_deleted_rows_stay_deleted(
    tmp_path: Path, empty_store: Store, allowed: None
) -> None:
    rows: list[dict[str, Any]] = [
        {"id": 21, "content": "code one"},
        {"id": 22, "content": "code two", "user_id": "ana"},
        {"id": 23, "content": "code three", "tags": "user:ben"},
        {"id": 24, "content": "code four code", "user_id": "ben"},
        {"id": 25, "content": "old code", "deleted_at": "2026-01-01"},
    ]
    made = make_sqlite(
        tmp_path / "memory.db", [*PUBLIC, *({**row, "is_sensitive": 1} for row in rows)],
        extra_columns=[*VAULT_COLUMNS, "deleted_at TEXT"],
    )  # fmt: skip
    publish_source(empty_store, made)
    seen = {None: {21}, "": {21}, "ana": {21, 22}, "ben": {21, 23, 24}}
    for user, expected in seen.items():
        answer = recall_sensitive("code", user=user)
        assert (set(ids(answer)), answer.searched) == (expected, len(expected))


def test_the_store_is_read_at_this_moment(source: Path, allowed: None) -> None:
    with closing(sqlite3.connect(source)) as db, db:
        db.execute(
            "UPDATE memories SET is_sensitive = 0, content = 'Alarm code due.' WHERE id = 11"
        )
        db.execute("UPDATE memories SET is_sensitive = 1 WHERE id = 2")
    assert set(ids(recall_sensitive("alarm code"))) == {2, 14, 15, 17, 18}


def test_json_lines_are_read_too(tmp_path: Path, empty_store: Store, allowed: None) -> None:
    publish_source(empty_store, write_lines(tmp_path / "rows.jsonl", (*PUBLIC, *SENSITIVE)))
    answer = recall_sensitive("alarm code")
    assert set(ids(answer)) == {11, 14, 15, 17, 18}
    assert {int(m.memory_id): m.reason for m in answer.memories}.items() <= REASONS.items()


def test_nothing_on_disk_changes_and_nothing_is_logged(
    source: Path, empty_store: Store, allowed: None, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    noctuary.recall("spare key")  # the access log is there
    before = digests(empty_store.root, source)
    assert any(name.endswith("access.sqlite") for name in before)
    answer = recall_sensitive("alarm code CANARYINT")
    assert answer.memories
    assert digests(empty_store.root, source) == before
    assert caplog.records == []
    assert list(empty_store.root.parent.iterdir()) == [empty_store.root]


@pytest.mark.usefixtures("source")
def test_an_answer_hides_what_it_holds_and_cannot_be_stored(allowed: None) -> None:
    answer = recall_sensitive("alarm code safe", k=20)
    for value in (answer, *answer.memories):
        assert not [c for c in CANARIES if c in repr(value) or c in str(value) or c in f"{value}"]
        for store in (pickle.dumps, copy.copy, copy.deepcopy, json.dumps):
            with pytest.raises(TypeError):
                store(value)
    revealed = json.dumps(answer.reveal())
    assert "CANARYINT" in revealed
    assert "CANARYPATH" in revealed


def test_a_failure_tells_no_row(
    source: Path, allowed: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither its message, nor its causes, nor any local of any of its frames."""

    def break_down(fields: Any) -> str:
        raise RuntimeError(f"found {fields}")

    monkeypatch.setattr(sensitive_rows, "find_fields_sensitivity", break_down)
    with pytest.raises(SourceError, match=r"RuntimeError.*nothing was kept") as caught:
        recall_sensitive("alarm")
    whole = traceback.TracebackException.from_exception(caught.value, capture_locals=True)
    told = "".join(line for line in whole.format() if "break_down" not in line)
    # The first row is the one that it fails on.
    assert not [c for c in (*CANARIES, str(PUBLIC[0]["content"])) if c in told]


@pytest.mark.usefixtures("empty_store")
def test_a_damaged_store_is_a_sentence(source: Path, allowed: None) -> None:
    source.write_bytes(b"SQLite format 3\x00" + b"CANARYINT" * 400)
    with pytest.raises(SourceError) as caught:
        recall_sensitive("alarm")
    assert "CANARY" not in str(caught.value)


def test_a_server_is_read_by_its_own_rules(
    database: MakeDatabase, empty_store: Store, allowed: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = [{k: v for k, v in r.items() if k != "sensitive"} for r in (*PUBLIC, *SENSITIVE)]
    rows = [
        {**r, **({"is_sensitive": True} if "is_sensitive" in r or r["id"] == 14 else {})}
        for r in plain
    ]
    rows += [
        {"id": 30, "content": "code of ana", "is_sensitive": True, "user_id": "ana"},
        {"id": 31, "content": "code of ben", "is_sensitive": True, "user_id": "ben"},
        {"id": 32, "content": f"token of ben {SENSITIVE[-1]['content']}", "user_id": "ben"},
        {"id": 33, "content": "old code", "is_sensitive": True, "deleted_at": "2026-01-01"},
    ]
    address = database(rows)
    monkeypatch.setenv("NOCTUARY_SOURCE_PATH", address)
    publish_source(empty_store, name_source(address))
    mine = recall_sensitive("alarm code", k=50, user="default")
    assert set(ids(mine)) == {11, 14, 15, 17, 18}
    assert set(ids(recall_sensitive("code token", k=50, user="ben"))) == {31, 32}
    assert set(ids(recall_sensitive("code token", k=50, user="ana"))) == {30}
    assert recall_sensitive("code").searched == 0, "with several users every row is somebody's"
    monkeypatch.setenv("NOCTUARY_SOURCE_PATH", "postgresql://x@elsewhere/db")
    with pytest.raises(ConfigError, match="which the settings do not name"):
        recall_sensitive("code")


def test_nothing_but_the_command_and_the_package_knows_it() -> None:
    """No server, hook, MCP tool, log or replay can show such rows, because none can reach them."""
    lib = Path(noctuary.__file__).parent
    known = {
        str(path.relative_to(lib))
        for path in lib.rglob("*.py")
        if "noctuary.recall.sensitive" in path.read_text(encoding="utf-8")
        or "recall_sensitive" in path.read_text(encoding="utf-8")
    }
    assert known == {"__init__.py", "cli/recall.py", "core/settings.py", "recall/sensitive.py"}


WORDS = st.sampled_from(["alarm", "code", "safe", "boiler", "diary"])
DOCUMENTS = st.lists(st.lists(WORDS, max_size=6), max_size=7)


def naive(tokens: list[str], documents: list[list[str]]) -> list[float]:
    """Return BM25 in Lucene's form, written out."""
    n = len(documents)
    mean = sum(map(len, documents)) / n if n and any(documents) else 1.0
    scores = [0.0] * n
    for token in set(tokens):
        df = sum(token in d for d in documents)
        rarity = math.log(1 + (n - df + 0.5) / (df + 0.5))
        for i, d in enumerate(documents):
            tf = d.count(token)
            scores[i] += rarity * tf / (tf + K1 * (1 - B + B * len(d) / mean)) if tf else 0.0
    return scores


@given(query=st.lists(WORDS, max_size=4), documents=DOCUMENTS)
def test_the_same_as_the_formula(query: list[str], documents: list[list[str]]) -> None:
    # Words of the list whose stem is another word would be missed by the naive twin.
    stems = {"alarm": "alarm", "code": "code", "safe": "safe", "boiler": "boiler", "diary": "diari"}
    indexed = [[stems[w] for w in d] for d in documents]
    expected = naive([stems[w] for w in query], indexed)
    assert score_documents(" ".join(query), indexed).tolist() == pytest.approx(expected)


@given(documents=DOCUMENTS, query=st.text(max_size=12))
def test_scores_are_zero_without_a_shared_word(documents: list[list[str]], query: str) -> None:
    scores = score_documents(query, documents)
    assert scores.shape == (len(documents),)
    assert all(math.isfinite(s) and s >= 0 for s in scores)
    assert not score_documents("zebra", documents).any()
