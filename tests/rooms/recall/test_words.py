"""Answers by words alone against the whole recall, told to do without vectors and graph."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noctuary import recall
from noctuary.core.settings import LiveSettings, RecallSettings, Settings
from noctuary.core.store import ROWS_FILE
from noctuary.core.tombstones import Tombstones, write_tombstones
from noctuary.core.types import MemoryRecord
from noctuary.recall.engine import Recaller
from noctuary.recall.profile import FLAGS, OFF, RetrievalProfile
from noctuary.recall.query import Scope
from noctuary.recall.result import RecallResult
from noctuary.recall.words import WordRecaller
from noctuary.sources.source import Share
from tests.support.archive_file import write_archive
from tests.support.calibration import calibrated
from tests.support.crowd import USERS, WINGS, WORDS, crowded
from tests.support.lean import write_encoder
from tests.support.live import Cache
from tests.support.store import Store, new_store, renumber

SAID = ("nobody said this", "!", "it’s", "on 3 January 2026", "in 2026-01", "ticket 4711")
DATED = ("when did", "which day", "in January", "on 31 December 2025")
BY_WORDS = {"dense_weight": 0.0, "graph_weight": 0.0}
ASKED_OF = ("101", "117", "133")
"""Memories of others that ana is given a share of; the second is forgotten."""


@pytest.fixture(scope="module")
def crowd(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Owners, shares, speakers in sessions; some reach, some have ended, some are forgotten."""
    root = tmp_path_factory.mktemp("crowd") / "house"
    store = new_store(root, encoder=write_encoder(root / "encoders"))
    tags = ("reach:everywhere", "", "")
    records = [r._replace(tags=tags[r.position % 3]) for r in with_ends(crowded())]
    store.publish(renumber(records), shares=[Share(i, "ana") for i in (*ASKED_OF, "103", "104")])
    gone = Tombstones(ids=frozenset({"117", "105", "140"}), since="2026-01-01")
    write_tombstones(root, gone)
    return root


def with_ends(records: Sequence[MemoryRecord]) -> list[MemoryRecord]:
    """Let every seventh memory end, by turns in the past and in the future."""
    ends = {1: 1, 2: 2**53}
    return renumber(
        [r._replace(valid_until_us=ends.get(r.position % 14 // 7 + 1 if r.position % 7 == 0 else 0))
         for r in records]
    )  # fmt: skip


def answers(
    store: Path,
    query: str,
    k: int,
    profile: Mapping[str, Any],
    user: str | None,
    wing: str | None = None,
    *,
    person: bool = False,
) -> tuple[RecallResult, RecallResult]:
    """Return the answer by words and that of the whole recall, both judged."""
    words = WordRecaller(store, Settings(profiles={"default": profile}))
    words.snapshot.calibration = calibrated(0.4, 0.1)
    found = words.recall(query, k, user=user, wing=wing, person=person, dry_run=True)
    assert found is not None
    whole = Recaller.open(store)
    whole.calibration = calibrated(0.4, 0.1)
    whole_profile = RetrievalProfile(**{**profile, **BY_WORDS})
    scope = Scope(user=user, wing=wing, person=person)
    told = whole.recall(query, k, profile=whole_profile, scope=scope)
    return found, told


def plain(result: RecallResult) -> list[dict[str, Any]]:
    return [memory.to_json() for memory in result.memories]


def alike(found: Any, told: Any) -> bool:
    """Compare values at any depth; numbers to their twelfth digit, which sums may round."""
    if isinstance(told, float):
        return found == pytest.approx(told, rel=1e-12, abs=1e-12)
    if isinstance(told, dict):
        return found.keys() == told.keys() and all(alike(found[n], told[n]) for n in told)
    if isinstance(told, list | tuple):
        return len(found) == len(told) and all(map(alike, found, told))
    return found == told


@given(
    query=st.lists(st.sampled_from((*WORDS, *USERS, *SAID, *DATED)), max_size=5),
    user=st.sampled_from([None, *USERS, "stranger"]),
    wing=st.sampled_from([None, *WINGS, "elsewhere"]),
    person=st.booleans(),
    profile=st.sampled_from(
        [
            {},
            {"fusion": "rrf"},
            {"date_boost": 0.0},
            {"date_boost": 0.1},
            {"importance_prior": 0.0},
            {"depth": 2},
            {"lexical_weight": 2.0},
        ]
    ),
    k=st.sampled_from([1, 3, 64]),
)
def test_it_is_the_whole_recalls_answer(
    crowd: Path, query: list[str], user: str | None, wing: str | None, person: bool,
    profile: dict[str, Any], k: int,
) -> None:  # fmt: skip
    text = f"the {' '.join(query)}?"
    found, told = answers(crowd, text, k, profile, user, wing, person=person)
    assert alike(plain(found), plain(told))
    assert alike(found.answerability, told.answerability)
    assert (found.snapshot_id, found.store) == (told.snapshot_id, told.store)


def test_nothing_of_others_and_nothing_forgotten_is_shown(crowd: Path) -> None:
    seen = {
        user: {str(m.id): m.user for m in answers(crowd, "Atlas", 64, {}, user)[0].memories}
        for user in (None, *USERS)
    }
    ended = {r.memory_id for r in with_ends(crowded()) if r.valid_until_us == 1}
    assert len(ended) > len(crowded()) // 20
    for user, found in seen.items():
        assert found
        assert not ended & found.keys()
        assert not {"105", "117", "140"} & found.keys()
        others = {i for i, owner in found.items() if owner not in (None, user)}
        assert others == ({"103", "104"} if user == "ana" else set())


PROMPTS = ("where is the spare key?", "what did Ana say about the flight?", "door", "Bot", "zzz")


@pytest.mark.parametrize("query", PROMPTS)
def test_it_answers_like_a_recall_whose_deadline_has_passed(dense_store: Store, query: str) -> None:
    found = WordRecaller(dense_store.root, Settings()).recall(query, 5, dry_run=True)
    late = recall(query, 5, deadline_ms=0.0, store=dense_store.root, dry_run=True)
    assert found is not None
    assert "deadline_dense" in {w.code for w in late.warnings}
    assert [w.code for w in found.warnings] == ["words_only"]
    assert alike(plain(found), plain(late))


def changed(flag: str) -> Any:
    """Return another value of a flag than plain fusion has."""
    declared, off = FLAGS[flag], OFF[flag]
    if isinstance(declared.among, tuple):
        return next(value for value in declared.among if value != off)
    if isinstance(off, str):
        return "a-reranker"
    return not off if isinstance(off, bool) else off + 1


APPLIED = {
    "lexical_coverage", "date_boost", "graph_weight", "importance_prior", "model_guard",
    "wing_diversity_weight", "adaptive_compaction", "decay_enabled",
}  # fmt: skip


@pytest.mark.parametrize("flag", OFF)
def test_a_flag_that_it_does_not_apply_is_left_to_the_whole_recall(
    plain_store: Store, flag: str
) -> None:
    settings = Settings(profiles={"default": {flag: changed(flag)}})
    assert WordRecaller(plain_store.root, settings).is_able is (flag in APPLIED)


def test_what_has_no_words_that_count_is_left_to_the_whole_recall(
    plain_store: Store,
) -> None:
    wordless = Settings(recall=RecallSettings(lexical_weight=0.0))
    assert not WordRecaller(plain_store.root, wordless).is_able
    words = WordRecaller(plain_store.root, Settings())
    assert words.recall("", 3) is words.recall("door", 0) is None


def test_rows_of_the_store_itself_are_left_to_the_whole_recall(served: Store, cache: Cache) -> None:
    assert WordRecaller(served.root, Settings()).is_able
    cache.add("The spare key is with the neighbour now.")
    patient = Settings(live=LiveSettings(deadline_ms=20_000.0))
    assert not WordRecaller(served.root, patient).is_able
    unasked = Settings(live=LiveSettings(enabled=False))
    assert WordRecaller(served.root, unasked).is_able


def test_an_archive_in_force_is_left_to_the_whole_recall(plain_store: Store) -> None:
    reader, path = Recaller.open(plain_store.root).reader, plain_store.paths.archive
    plans = {"p": {"101": "102"}}
    write_archive(path, reader, plans, {"p": [(1, 2)]})
    assert WordRecaller(plain_store.root, Settings()).is_able, "it was undone"
    write_archive(path, reader, plans, {"p": [(1, None)]})
    assert not WordRecaller(plain_store.root, Settings()).is_able


def test_damage_is_left_to_the_whole_recall(plain_store: Store) -> None:
    (directory,) = plain_store.paths.snapshots.iterdir()
    with closing(sqlite3.connect(directory / ROWS_FILE)) as rows, rows:
        rows.execute("UPDATE memories SET content = replace(content, 'blue', 'grey')")
    words = WordRecaller(plain_store.root, Settings())
    assert words.recall("spare key", 3) is None
    assert words.recall("boiler valve", 3) is not None
