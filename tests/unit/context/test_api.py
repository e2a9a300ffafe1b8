from __future__ import annotations

import sqlite3
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import noctuary
from noctuary.context import assemble as assembling
from noctuary.context.assemble import assemble
from noctuary.context.documents import load_documents
from noctuary.context.prompt import ContextProfile, Turn
from noctuary.core.errors import AuthoredBudgetError, AuthoredMissingError
from noctuary.core.sqlite import close_logs
from noctuary.recall.api import find_serving, recall
from noctuary.recall.engine import Recaller
from noctuary.recall.result import WORDS, WORDS_AND_VECTORS, Calibration
from tests.support.calibration import MEASURES, calibrated
from tests.support.store import Store

MOMENT = datetime(2026, 1, 20, tzinfo=UTC)


@pytest.fixture
def agents_md(tmp_path: Path) -> Path:
    path = tmp_path / "AGENTS.md"
    path.write_text("- Feed the cat.\n\nYou must lock the door.\n\nThe boiler is in the cellar.\n")
    return path


def codes(made: noctuary.Context) -> list[str]:
    return [warning.code for warning in made.warnings]


def variants(made: noctuary.Context) -> dict[str, float | None]:
    return {part.id: part.score for part in made.parts if part.kind == "variant"}


def test_it_is_exported(dense_store: Store) -> None:
    assert noctuary.assemble is assemble
    assert isinstance(noctuary.assemble("key", 100), noctuary.Context)


def test_memories_have_the_score_of_a_two_pass_recall(dense_store: Store) -> None:
    asked: dict[str, Any] = {"user": "ana", "as_of": MOMENT}
    made = assemble("the spare key", 2_000, profile="reference", **asked)
    result = recall("the spare key", 16, profile="libravdb-two-pass", dry_run=True, **asked)
    expected = {str(m.id): m.final_score for m in result.memories[:8]}
    assert variants(made) == pytest.approx(expected)
    assert "101" in expected
    assert made.token_counter == "tokenizer:word-axes"
    assert made.snapshot_id == result.snapshot_id
    assert made.store == str(dense_store.root)
    assert codes(made) == []


def test_documents_turns_and_memories_share_one_scale(dense_store: Store, agents_md: Path) -> None:
    session = [Turn("user", f"the boiler hums, day {n}") for n in range(6)]
    profile = ContextProfile(min_tail_turns=1, tail_target_tokens=0)
    made = assemble(
        "is the boiler broken", 2_000, session=session, documents=[agents_md], profile=profile,
        as_of=MOMENT,
    )  # fmt: skip
    assert {p.source for p in made.parts if p.kind == "variant"} == {
        "authored", "session", "memory"
    }  # fmt: skip
    assert [p.id for p in made.parts if p.kind == "tail"] == ["turn-000005"]
    near = {p.id: p.why["similarity"] for p in made.parts if p.kind == "variant"}
    assert near["105"] > 0.9
    assert near[f"{agents_md}#000002"] > 0.9
    assert min(near[f"turn-{n:06d}"] for n in range(5)) > 0.9


def test_what_was_shown_is_logged_and_nothing_else(dense_store: Store) -> None:
    asked: dict[str, Any] = {"user": "ana", "profile": wide()}
    whole = assemble("the spare key", 4_000, dry_run=True, **asked)
    first, second, *_ = whole.parts
    # The id of a smaller block is another one, of up to 16 tokens.
    room = whole.frame_tokens + first.tokens + min(second.tokens - 1, 16)
    made = assemble("the spare key", room, **asked)
    close_logs()
    shown = [p.id for p in made.parts if p.source == "memory"]
    assert shown == [first.id]
    with sqlite3.connect(dense_store.paths.access_log) as log:
        assert log.execute("SELECT memory_id FROM retrievals").fetchall() == [(shown[0],)]
    with sqlite3.connect(dense_store.paths.injections) as record:
        assert record.execute("SELECT count(*) FROM injected WHERE kind = 'line'").fetchone()[0]


def test_a_dry_run_writes_nothing(dense_store: Store) -> None:
    before = sorted(p for p in dense_store.root.rglob("*") if p.is_file())
    assert variants(assemble("the spare key", 500, dry_run=True))
    close_logs()
    assert sorted(p for p in dense_store.root.rglob("*") if p.is_file()) == before


def test_nobody_sees_the_memories_of_another(dense_store: Store) -> None:
    query = "door code in the car or the red notebook"
    assert "107" in variants(assemble(query, 2_000, user="ben", profile=wide()))
    nobody = assemble(query, 2_000, profile=wide())
    assert not {"106", "107"} & variants(nobody).keys()
    assert "user_required" in codes(nobody)
    assert not {"106"} & variants(assemble(query, 2_000, user="ben", profile=wide())).keys()


def wide() -> ContextProfile:
    return ContextProfile(coarse_threshold=-1.0, final_depth=16)


def test_a_wing_and_a_moment_narrow_the_memories(dense_store: Store) -> None:
    work = assemble("Atlas migration", 2_000, wing="work", profile=wide())
    assert set(variants(work)) == {"103", "104"}
    early = assemble(
        "Atlas migration", 2_000, wing="work", profile=wide(),
        as_of=datetime(2026, 1, 4, 12, tzinfo=UTC),
    )  # fmt: skip
    assert set(variants(early)) == {"103"}


def test_hop_targets_that_name_nothing_are_said(home: Path, tmp_path: Path) -> None:
    path = tmp_path / "A.md"
    targets = ", ".join(f"A.md#{n:06d}" for n in range(90, 95))
    path.write_text(f"---\nhop_targets: [{targets}]\n---\n\nA paragraph.\n")
    (warning,) = [
        w for w in assemble("x", 500, documents=[path]).warnings
        if w.code == "dangling_hop_targets"
    ]  # fmt: skip
    assert "A.md#000090, A.md#000091, A.md#000092 and 2 more" in warning.message


def test_without_an_encoder_words_decide_and_tokens_are_estimated(
    plain_store: Store, agents_md: Path
) -> None:
    query = "where is the boiler in the cellar"
    made = assemble(query, 2_000, documents=[agents_md], user="ana")
    assert codes(made) == ["keywords_only"]
    assert made.token_counter == "estimate"
    assert f"{agents_md}#000002" in variants(made)
    assert "105" in variants(made)


def test_without_a_store_there_are_the_documents(home: Path, agents_md: Path) -> None:
    made = assemble("boiler cellar", 500, documents=[agents_md], session=[Turn("user", "hi")])
    assert codes(made) == ["no_snapshot"]
    assert [p.kind for p in made.parts] == ["I1", "tail", "I2", "variant"]
    assert (made.snapshot_id, made.store) == (None, None)


def test_an_unreadable_store_is_a_warning(home: Path) -> None:
    (home / "torn").mkdir()
    (home / "torn" / "CURRENT").write_text("{")
    made = assemble("x", 100, store=str(home / "torn"))
    assert codes(made) == ["store_unreadable"]
    assert made.text == ""


def test_damage_that_shows_late_is_a_warning(
    dense_store: Store, agents_md: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any, **__: Any) -> Any:
        raise RuntimeError("a page is gone")

    monkeypatch.setattr(Recaller, "recall", broken)
    made = assemble("boiler", 500, documents=[agents_md])
    assert codes(made) == ["snapshot_damaged"]
    assert [p.kind for p in made.parts] == ["I1", "I2", "variant"]


def test_a_recall_that_abstains_gives_no_memories(
    dense_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The ranking that the threshold was calibrated on is judged, not that of the two passes."""
    real, asked = Recaller.recall, list[Any]()

    def recording(self: Recaller, *args: Any, **how: Any) -> Any:
        asked.append(how["profile"])
        return real(self, *args, **how)

    certain = calibrated(1.0)
    monkeypatch.setattr(find_serving(None)[0], "calibration", certain)
    monkeypatch.setattr(Recaller, "recall", recording)
    made = assemble("the spare key", 500)
    assert codes(made) == ["abstained"]
    assert made.parts == ()
    assert [profile.scorer for profile in asked] == ["fusion"]
    lenient = calibrated()
    monkeypatch.setattr(find_serving(None)[0], "calibration", lenient)
    assert variants(assemble("the spare key", 500))


def test_a_memory_below_its_bar_takes_no_room(
    dense_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    query = "spare key and the boiler"
    recaller = find_serving(None)[0]
    monkeypatch.setattr(recaller, "calibration", calibrated())
    found = recall(query, 16, profile="libravdb-two-pass").memories
    best = max(m.support or 0.0 for m in found)
    monkeypatch.setattr(recaller, "calibration", calibrated(bar=best))
    clears = {str(m.id) for m in found if m.support == best}
    assert set(variants(assemble(query, 500))) == clears
    assert len(clears) < len(found)


def test_whether_there_is_an_answer_is_judged_once(
    dense_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here by words alone, as recalls rank; the ranking of two passes has no say in it."""
    monkeypatch.setenv("NOCTUARY_RECALL_DENSE_WEIGHT", "0")
    recaller = find_serving(None)[0]
    thresholds = {WORDS: 0.0, WORDS_AND_VECTORS: 1.0}
    monkeypatch.setattr(recaller, "calibration", Calibration(thresholds, MEASURES))
    assert variants(assemble("the spare key", 500))


def test_after_the_deadline_nothing_more_is_read(dense_store: Store, tmp_path: Path) -> None:
    path = tmp_path / "never-read-before.md"
    path.write_text("A cat of its own that no test has encoded.\n")
    made = assemble("the cat", 500, documents=[path], deadline_ms=0.0)
    assert "variants_unread" in codes(made)
    assert not variants(made)
    assert variants(assemble("the cat", 500, documents=[path]))


def test_a_process_keeps_no_more_vectors_than_it_may(
    dense_store: Store, agents_md: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(assembling, "_CACHED_TEXTS", 2)
    kept = dict[tuple[str, str], Any]()
    monkeypatch.setattr(assembling, "_known_vectors", kept)
    agents_md.write_text("\n\n".join(f"The cat sleeps, part {n}." for n in range(5)))
    assemble("the cat", 500, documents=[agents_md])
    assert [text for _, text in kept] == ["The cat sleeps, part 3.", "The cat sleeps, part 4."]


def test_rules_over_their_reserve_are_refused_at_load(dense_store: Store, agents_md: Path) -> None:
    profile = ContextProfile(hard_fraction=0.01)
    with pytest.raises(AuthoredBudgetError, match="reserve of 5"):
        assemble("x", 500, documents=[agents_md], profile=profile)
    loaded = assemble("x", 500, documents=load_documents([agents_md]), profile=profile)
    assert [reason.code for reason in loaded.degraded] == ["hard_over_reserve"]
    with pytest.raises(AuthoredMissingError):
        assemble("x", 500, documents=[agents_md.with_name("gone.md")])


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"query": 3}, "query must be a text"),
        ({"budget_tokens": -1}, "budget_tokens must be a whole number >= 0, found -1"),
        ({"budget_tokens": True}, "budget_tokens must be"),
        ({"user": 3}, "user must be str"),
        ({"deadline_ms": float("nan")}, "deadline_ms must be a number"),
        ({"profile": "nope"}, "profile must be one of"),
        ({"session": [Turn("user", None)]}, "turn 0: text must be a text"),  # type: ignore[arg-type]
        ({"session": [Turn("a", "b", at_us=2**63)]}, "turn 0: at_us must be microseconds"),
        ({"session": [Turn("a", "b", "x"), Turn("a", "b", "x")]}, "turn 1: its id 'x' is that"),
        ({"session": [Turn("a", "b"), Turn("a", "b", "turn-000000")]}, "turn 1: its id"),
        ({"session": [{"role": "user", "text": "x"}]}, "turn 0: expected a Turn, found dict"),
        ({"documents": "AGENTS.md"}, "documents must be a list of paths, found 'AGENTS.md' alone"),
        ({"session": [Turn("a", "b", bundle=3)]}, "turn 0: bundle must be"),  # type: ignore[arg-type]
    ],
)
def test_arguments_that_mean_nothing_are_refused(
    home: Path, arguments: dict[str, Any], says: str
) -> None:
    asked: dict[str, Any] = {"query": "x", "budget_tokens": 100, **arguments}
    with pytest.raises(ValueError, match=says):
        assemble(**asked)


def test_every_fault_is_named_at_once(home: Path) -> None:
    with pytest.raises(ValueError, match=r"wing.*budget_tokens.*turn 0: role"):
        assemble("x", -1, wing=3, session=[Turn(1, "x")])  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
