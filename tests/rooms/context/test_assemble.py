from __future__ import annotations

import math
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import noctuary
from noctuary.context import assemble as assembling
from noctuary.context import assemble as candidates
from noctuary.context.assemble import (
    Candidate,
    assemble,
    assemble_from,
    gather,
    hops,
    of_memory,
    rank,
    text_coverage,
    two_passes,
)
from noctuary.context.documents import HARD, Node, parse_document
from noctuary.context.prompt import PROFILES, Context, ContextProfile, Turn
from noctuary.context.render import Line
from noctuary.core.errors import AuthoredMissingError
from noctuary.core.sqlite import close_logs
from noctuary.core.types import UNDATED_US
from noctuary.recall.api import find_serving, recall
from noctuary.recall.engine import Recaller
from noctuary.recall.result import WORDS, WORDS_AND_VECTORS, Calibration
from noctuary.sources.injected import cut_blocks
from noctuary.text.tokens import tokenize
from tests.support.calibration import MEASURES, calibrated
from tests.support.contexts import DAY_S, NOW_US, MemorySearch, chat, coverage, memory, s_final
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
    before = sorted(p for p in dense_store.root.rglob("*") if p.is_file())
    whole = assemble("the spare key", 4_000, dry_run=True, **asked)
    close_logs()
    assert sorted(p for p in dense_store.root.rglob("*") if p.is_file()) == before
    first, second, *_ = whole.parts
    # The id of a smaller block is another one, of up to 16 tokens.
    room = whole.frame_tokens + first.tokens + min(second.tokens - 1, 16)
    made = assemble("the spare key", room, **asked)
    close_logs()
    shown = [p.id for p in made.parts if p.source == "memory"]
    assert shown == [first.id]
    with closing(sqlite3.connect(dense_store.paths.access_log)) as log:
        assert log.execute("SELECT memory_id FROM retrievals").fetchall() == [(shown[0],)]
    with closing(sqlite3.connect(dense_store.paths.injections)) as record:
        assert record.execute("SELECT count(*) FROM injected WHERE kind = 'line'").fetchone()[0]


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
    targets = ", ".join(f"A.md#{n:06d}" for n in (90, 91))
    path.write_text(f"---\nhop_targets: [{targets}]\n---\n\nA paragraph.\n")
    (warning,) = [
        w for w in assemble("x", 500, documents=[path]).warnings
        if w.code == "dangling_hop_targets"
    ]  # fmt: skip
    assert warning.message.endswith("A.md#000090, A.md#000091")


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
    (home / "torn").mkdir()
    (home / "torn" / "CURRENT").write_text("{")
    torn = assemble("x", 100, store=str(home / "torn"))
    assert (codes(torn), torn.text) == (["store_unreadable"], "")


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
    monkeypatch.setattr(assembling, "_MOST_VECTORS", 2)
    kept = dict[tuple[str, str], Any]()
    monkeypatch.setattr(assembling, "_vectors", kept)
    agents_md.write_text("\n\n".join(f"The cat sleeps, part {n}." for n in range(5)))
    assemble("the cat", 500, documents=[agents_md])
    assert [text for _, text in kept] == ["The cat sleeps, part 4."]


def test_a_document_that_is_missing_is_refused(dense_store: Store, agents_md: Path) -> None:
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
        ({"documents": "AGENTS.md"}, "documents must be a list of paths, found 'AGENTS.md' alone"),
    ],
)
def test_arguments_that_mean_nothing_are_refused(
    home: Path, arguments: dict[str, Any], says: str
) -> None:
    asked: dict[str, Any] = {"query": "x", "budget_tokens": 100, **arguments}
    with pytest.raises(ValueError, match=says):
        assemble(**asked)


texts = st.text("abkey key-ring ключ 鍵鍵 ", max_size=30)


@given(texts, st.lists(texts, max_size=6))
def test_coverage_is_the_share_of_the_querys_words(query: str, found: list[str]) -> None:
    assert text_coverage(tokenize(query), found) == [coverage(query, t) for t in found]


def test_a_memory_keeps_the_stores_numbers() -> None:
    row = memory(17, "the key", age_days=0.0, importance=0.75, wing="home", room="hall")
    made = of_memory(row, 0.5, 0.25)
    assert (made.id, made.source, made.similarity, made.store_score) == ("17", "memory", 0.5, 0.25)
    assert (made.authored, made.created_at_us) == (0.75, NOW_US)
    assert made.line.rendered().startswith("- [17] 2026-05-28 (home/hall): the key")
    bare = of_memory(row | {"created_at": None, "importance": None}, None, None)
    assert (bare.created_at_us, bare.authored, bare.store_score) == (UNDATED_US, 0.0, None)


def test_a_wording_competes_once_and_the_first_of_it_stays() -> None:
    def own(name: str, text: str) -> Candidate:
        return Candidate(name, "session", text, Line(name, "undated", text))

    found = [of_memory(memory(1, "Two  words"), 0.9, 0.9)]
    made, warnings = gather(
        "words",
        [own("a", "two words"), own("b", "two\nwords"), own("c", "present words")],
        found,
        MemorySearch(),
        frozenset({"present words"}),
    )
    assert [c.id for c in made] == ["a"]
    assert warnings == []


REFERENCE = PROFILES["reference"]
share = st.floats(0, 1)
anything = st.floats(allow_nan=True, allow_infinity=True)


def candidate(name: str, similarity: float = 0.5, **fields: object) -> Candidate:
    line = Line(name, "undated", name)
    made = Candidate(name, "authored", name, line, similarity=similarity)
    return made._replace(**fields)  # pyright: ignore[reportArgumentType]


def test_what_is_far_or_too_deep_is_left_out() -> None:
    near = [candidate(f"n{place:02d}", 0.9 - place / 100) for place in range(20)]
    found = two_passes([*near, candidate("far", 0.19), candidate("edge", 0.2)], NOW_US, REFERENCE)
    assert [f.id for f in found] == [f"n{place:02d}" for place in range(8)]
    edge = two_passes([candidate("far", 0.19), candidate("edge", 0.2)], NOW_US, REFERENCE)
    assert [f.id for f in edge] == ["edge"], "theta1 itself passes"


@given(
    st.floats(0.2, 1), share, share, st.floats(0, 400) | st.just(-3.0),
    st.sampled_from([*PROFILES.values(), ContextProfile(authority_floor=0.1)]),
)  # fmt: skip
def test_the_score_is_the_formula(
    similarity: float, covered: float, authored: float, age_days: float, profile: ContextProfile
) -> None:
    made = int(NOW_US - age_days * DAY_S * 1e6)
    text = candidate("x", similarity, coverage=covered, authored=authored, created_at_us=made)
    (found,) = two_passes([text], NOW_US, profile)
    expected = s_final(similarity, covered, age_days * DAY_S, authored, profile)
    assert found.score == pytest.approx(expected, rel=1e-9, abs=1e-15)


@pytest.mark.parametrize(
    ("fields", "profile", "low", "high"),
    [
        # An undated text is of now.
        ({"created_at_us": UNDATED_US}, "reference", 0.3, 1.0),
        # The floor of the default keeps what is old; the reference has none.
        ({"created_at_us": NOW_US - int(7 * DAY_S * 1e6)}, "reference", 0.0, 0.001),
        ({"created_at_us": NOW_US - int(7 * DAY_S * 1e6)}, "default", 0.3, 1.0),
        # The store's own score counts where there is one.
        ({"store_score": 0.25}, "reference", 0.25, 0.25),
    ],
)
def test_age_and_the_stores_own_score_count(
    fields: dict[str, Any], profile: str, low: float, high: float
) -> None:
    (found,) = two_passes([candidate("x", 0.8, **fields)], NOW_US, PROFILES[profile])
    assert low <= found.score <= high


@given(st.lists(st.tuples(anything, anything, st.none() | anything, anything), max_size=30))
def test_no_number_breaks_a_score(rows: list[tuple[float, float, float | None, float]]) -> None:
    """Invariants 5 and 9: in [0, 1] and finite, also where a model or a file is damaged."""
    profile = ContextProfile(coarse_threshold=-1.0)
    found = two_passes(
        [
            candidate(
                str(place), similarity, coverage=covered, store_score=score, authored=authored
            )
            for place, (similarity, covered, score, authored) in enumerate(rows)
        ],
        NOW_US,
        profile,
    )
    assert len(found) == min(len(rows), 8)
    assert all(0.0 <= f.score <= 1.0 for f in found)
    assert all(math.isfinite(f.why["similarity"]) for f in found)
    assert [f.score for f in found] == sorted((f.score for f in found), reverse=True)


def test_a_hop_has_its_best_parents_score_decayed() -> None:
    ranked = two_passes(
        [
            candidate("good", 0.9, authored=1.0, hop_targets=("t", "nowhere", "good")),
            candidate("better", 1.0, authored=1.0, hop_targets=("t",)),
        ],
        NOW_US,
        REFERENCE,
    )
    nodes = {name: candidate(name) for name in ("good", "better", "t")}
    (hop,) = hops(ranked, nodes, REFERENCE)
    assert hop.id == "t"
    assert hop.score == 0.5 * ranked[0].score
    assert hop.why == {"rule": "hop", "parent": "better", "decay": 0.5}
    for score, count in ((0.30, 1), (0.29, 0)):  # below the threshold it does not come
        parent = candidate("p", 1.0, hop_targets=("t",), store_score=score)
        assert len(hops(two_passes([parent], NOW_US, REFERENCE), nodes, REFERENCE)) == count
    # A memory with the id of a node is another thing, and hops end after one step.
    parent = candidate("a", 1.0, authored=1.0, hop_targets=("m",))
    twin = candidate("m", 0.9, source="memory", store_score=0.4)
    target = candidate("m", hop_targets=("a",))
    found = rank([parent, twin], {"m": target}, NOW_US, REFERENCE)
    places = [(f.source, f.id) for f in found]
    assert places == [("authored", "a"), ("memory", "m"), ("authored", "m")]


@given(st.lists(st.tuples(st.floats(0.2, 1), st.integers(0, 9)), max_size=10), st.floats(0, 1))
def test_hops_are_distinct_decayed_and_no_one_twice(
    rows: list[tuple[float, int]], threshold: float
) -> None:
    profile = ContextProfile(hop_threshold=threshold, final_depth=4)
    listed = [
        candidate(str(place), similarity, hop_targets=(str(target),))
        for place, (similarity, target) in enumerate(rows)
    ]
    nodes = {c.id: c for c in listed}
    found = rank(listed, nodes, NOW_US, profile)
    ids = [f.id for f in found]
    assert len(ids) == len(set(ids))
    scores = {f.id: f.score for f in found if f.why["rule"] == "two_pass"}
    for hop in (f for f in found if f.why["rule"] == "hop"):
        parents = [scores[p] for p in scores if hop.id in nodes[p].hop_targets]
        assert hop.score == profile.hop_decay * max(parents)
        assert hop.score >= threshold
        assert hop.why["parent"] in scores, "one step only"


DEFAULT = PROFILES["default"]
NO_TAIL = replace(DEFAULT, min_tail_turns=0, tail_target_tokens=0)
DOCUMENT = """# Rules of the house

- Never push to main.
- Run the tests.

You must ask before you deploy.

> Be kind.

You should write short sentences.

The carrier service is deployed with make.

Invoices are sent on Mondays.
"""


def authored(text: str = DOCUMENT, source: str = "AGENTS.md") -> tuple[Node, ...]:
    return parse_document(text, source)


def assembled(
    query: str,
    budget: int,
    session: Sequence[Turn] = (),
    documents: Sequence[Node] = (),
    profile: ContextProfile = DEFAULT,
    **search: Any,
) -> Context:
    return assemble_from(query, budget, session, documents, profile, MemorySearch(**search))[0]


def ids(context: Context, *kinds: str) -> list[str]:
    return [part.id for part in context.parts if part.kind in kinds]


@pytest.mark.parametrize(("target", "kept"), [(128, 4), (329, 4), (330, 6), (429, 6), (2_000, 38)])
def test_a_larger_target_extends_the_tail_by_whole_pairs(target: int, kept: int) -> None:
    """Both sections of the tail have tags of 15 tokens, which count as well."""
    profile = replace(DEFAULT, tail_target_tokens=target)
    context = assembled("nothing in common", 10_000, chat(40, 50), profile=profile)
    assert {part.tokens for part in context.parts} == {50}
    assert sorted(ids(context, "tail")) == [f"turn-{at:06d}" for at in range(40 - kept, 40)]
    assert not context.degraded


def test_everything_stands_in_its_order_and_costs_what_is_written() -> None:
    session = [Turn("user" if n % 2 == 0 else "assistant", f"carrier turn {n}") for n in range(10)]
    profile = replace(DEFAULT, tail_target_tokens=80)
    context = assembled(
        "how is the carrier service deployed with make",
        2_000,
        session,
        authored(),
        profile,
        memories=[memory(7, "the carrier service is deployed on fridays")],
    )
    kinds = [part.kind for part in context.parts]
    order = ["I1", "tail", "I2", "tail", "variant"]
    assert [k for n, k in enumerate(kinds) if n == 0 or kinds[n - 1] != k] == order
    rules = [part.why["rule"] for part in context.parts]
    assert rules.index("tail_base") < rules.index("soft_prefix") < rules.index("tail_extension")
    assert {part.source for part in context.parts if part.kind == "variant"} == {
        "authored",
        "session",
        "memory",
    }
    scores = [part.score for part in context.parts if part.score is not None]
    assert scores == sorted(scores, reverse=True)
    place = 0
    for part in context.parts:
        place = context.text.index(part.rendered, place) + len(part.rendered)
    assert context.tokens == context.frame_tokens + sum(part.tokens for part in context.parts)


def test_soft_nodes_are_a_prefix_and_none_is_skipped_for_a_shorter_one() -> None:
    whole = assembled("x", 1_000, documents=authored(), profile=NO_TAIL)
    first, second, third = (part.tokens for part in whole.parts if part.kind == "I2")
    assert third > second, "the second would fit where the first does not"
    frame = 14
    for room, kept in [(frame + first - 1, 0), (frame + first, 1), (frame + first + second, 2)]:
        profile = replace(NO_TAIL, soft_fraction=room / 1_000)
        found = assembled("x", 1_000, documents=authored(), profile=profile)
        assert len(ids(found, "I2")) == kept


def test_rules_that_do_not_fit_are_there_all_the_same_and_nothing_else_is() -> None:
    context = assembled("carrier", 10, chat(9, 20), authored(), memories=[memory(7, "carrier")])
    assert [reason.code for reason in context.degraded] == [
        "hard_over_budget",
        "tail_base_over_budget",
    ]
    assert {part.kind for part in context.parts} == {"I1", "tail"}
    assert ids(context, "I1") == [node.id for node in authored() if node.tier == HARD]
    assert len(ids(context, "tail")) == 5, "the ninth turn asks: its pair before stays together"
    assert context.tokens > context.budget_tokens
    assert context.degraded[1].needed_tokens == context.tokens
    assert context.degraded[1].allowed_tokens == 10


def test_hard_nodes_have_a_reserve_where_a_profile_sets_one() -> None:
    whole = assembled("x", 10_000, (), authored("- One rule.\n"))
    costs = whole.tokens
    reserve = replace(NO_TAIL, hard_fraction=0.5)
    fits = assembled("x", 2 * costs, (), authored("- One rule.\n"), reserve)
    assert not fits.degraded
    (reason,) = assembled("x", 2 * costs - 1, (), authored("- One rule.\n"), reserve).degraded
    assert reason[:3] == ("hard_over_reserve", costs, costs - 1)


def test_the_budget_is_met_to_the_token() -> None:
    whole = assembled("x", 10_000, chat(4, 20), authored("- One rule.\n"))
    assert not assembled("x", whole.tokens, chat(4, 20), authored("- One rule.\n")).degraded
    tight = assembled("x", whole.tokens - 1, chat(4, 20), authored("- One rule.\n"))
    assert [reason.code for reason in tight.degraded] == ["tail_base_over_budget"]
    assert tight.text == whole.text, "nothing is cut"


def test_what_stands_in_the_prompt_already_is_not_found_again() -> None:
    session = [Turn("user", "the spare key is behind the door")]
    found = [
        memory(1, "The spare  key is behind the door"),
        memory(2, "User: the spare key is behind the door", session_id="s"),
        memory(3, "the spare key was lost"),
        memory(4, "the spare key was lost"),
    ]
    context = assembled("where is the spare key", 2_000, session, memories=found)
    assert ids(context, "variant") == ["3"]


def test_earlier_turns_are_found_and_the_tail_is_not() -> None:
    session = [Turn("user" if n % 2 == 0 else "assistant", f"boiler talk {n}") for n in range(12)]
    search = MemorySearch()
    profile = replace(DEFAULT, tail_target_tokens=0)
    context = assemble_from("boiler talk", 2_000, session, [], profile, search)[0]
    tail = ids(context, "tail")
    assert tail == [f"turn-{n:06d}" for n in range(8, 12)]
    assert set(search.compared) == {f"boiler talk {n}" for n in range(8)}
    assert set(ids(context, "variant")) == {f"turn-{n:06d}" for n in range(8)}


def test_hop_targets_come_along_with_their_parent() -> None:
    nodes = [
        node._replace(hop_targets=("AGENTS.md#000007",)) if "carrier" in node.text else node
        for node in authored()
    ]
    context = assembled("the carrier service is deployed with make.", 2_000, documents=nodes)
    last = context.parts[-1]
    assert (last.id, last.why["rule"]) == ("AGENTS.md#000007", "hop")
    assert last.text == "Invoices are sent on Mondays."
    assert last.score is not None
    assert last.score >= DEFAULT.hop_threshold


def test_without_cosines_the_share_of_keywords_takes_their_place() -> None:
    found = [memory(1, "the carrier works"), memory(2, "nothing of the kind")]
    search = MemorySearch(memories=found, knows_cosines=False)
    context = assemble_from("carrier work", 2_000, [], authored(), NO_TAIL, search)[0]
    assert [part.id for part in context.parts if part.source == "memory"] == ["1"]
    assert all(p.why["similarity"] == p.why["coverage"] for p in context.parts if p.score)
    assert search.compared == []


@pytest.mark.parametrize(
    ("query", "text"),
    [("где запасной ключ", "запасной ключ в кладовке"), ("备用钥匙在哪里", "备用钥匙在厨房")],
)
def test_queries_of_other_scripts_have_keywords(query: str, text: str) -> None:
    context = assembled(
        query, 2_000, memories=[memory(1, text)], knows_cosines=False, profile=NO_TAIL
    )
    assert ids(context, "variant") == ["1"]
    assert context.parts[0].why["coverage"] > 0.3


def test_what_is_not_compared_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(candidates, "MAX_COMPARED", 3)
    session = [Turn("user", f"other {n}") for n in range(10)]
    session[2] = Turn("user", "the boiler leaks")
    search = MemorySearch(unread=frozenset(["other 5"]))
    profile = replace(DEFAULT, tail_target_tokens=0)
    context = assemble_from("boiler leaks", 2_000, session, [], profile, search)[0]
    assert search.compared == ["other 5", "other 4", "the boiler leaks"]
    assert [w.code for w in context.warnings] == ["variants_not_compared", "variants_unread"]
    assert ids(context, "variant") == ["turn-000002"]


@pytest.mark.parametrize("query", ["", " \n"])
def test_what_is_blank_or_refused_by_the_store_is_left_out(query: str) -> None:
    search = MemorySearch(memories=[memory(1, "x")])
    context = assemble_from(query, 500, chat(6, 9), authored(), DEFAULT, search)[0]
    assert [warning.code for warning in context.warnings] == ["empty_query"]
    assert search.asked == []
    assert not ids(context, "variant")
    nothing = assemble_from("x", 0, [], [], DEFAULT, search)[0]
    assert (nothing.text, nothing.tokens, search.asked) == ("", 0, [])
    session = [Turn("user", "one", id="m1"), Turn("assistant", " \n"), Turn("user", "two")]
    blank = assembled("x", 500, session)
    assert ids(blank, "tail") == ["m1", "turn-000002"]
    abstains = assembled(
        "carrier service", 2_000, documents=authored(), memories=[memory(1, "carrier service")],
        refusal="below the threshold",
    )  # fmt: skip
    assert [warning.code for warning in abstains.warnings] == ["abstained"]
    assert {part.source for part in abstains.parts} == {"authored"}
    assert ids(abstains, "variant"), "what was written for the agent is found all the same"


def test_found_texts_are_known_again_when_they_come_back() -> None:
    session = [Turn("user", "a <noctuary-recall id='0'> b"), Turn("assistant", "carrier")]
    context = assembled(
        "carrier service", 2_000, session, authored(), memories=[memory(1, "carrier service works")]
    )
    cut = cut_blocks(context.text)
    assert cut.blocks == 1
    assert "carrier service works" in context.text
    assert "carrier service works" not in cut.text
    assert "a &lt;noctuary-recall id='0'> b" in cut.text
