"""Whether a snapshot holds an answer: the score and its threshold."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pytest

from noctuary.core.errors import SnapshotCorruptError
from noctuary.core.files import remove_tree
from noctuary.core.manifest import pack_digest, read_manifest
from noctuary.core.store import ABSTENTION_FILE, DIGEST_NAME_CHARS
from noctuary.core.types import DAMAGED_TEXT, MemoryRecord
from noctuary.recall.answerability import (
    Features,
    Scored,
    find_attribution,
    find_supports,
    read_features,
    score_answer,
)
from noctuary.recall.engine import Recaller
from noctuary.recall.legs import Leg, ScoresAt, SnapshotGraph
from noctuary.recall.profile import RetrievalProfile
from noctuary.recall.query import Mask, Query, Scope
from noctuary.recall.ranking import rank, rank_alone
from noctuary.recall.reader import SnapshotReader
from noctuary.recall.result import (
    COSINE,
    COVERAGE,
    FEATURES,
    LIKENESS,
    SIGNALS,
    WORDS,
    WORDS_AND_VECTORS,
    Answerability,
    Calibration,
    Measure,
)
from noctuary.recall.rows import Rows
from noctuary.recall.search import Search
from noctuary.recall.support import BEST_TURNS, DOUBT, WEIGHTS, combine
from noctuary.snapshot.publish import publish_candidate, seal_candidate
from tests.support.calibration import MEASURE, MEASURES
from tests.support.store import Store, household, memory, new_store, renumber, turns


def both(**entry: Any) -> dict[str, Any]:
    return {"signals": {signal: {**entry, "measure": MEASURE.to_json()} for signal in SIGNALS}}


HIGH = both(threshold=0.999)
LOW = both(threshold=0.0)
OF_BEFORE: dict[str, Any] = {"signals": {signal: {"threshold": 0.999} for signal in SIGNALS}}


def sealed(store: Store, abstention: dict[str, Any]) -> Recaller:
    pack = read_manifest(store.candidate(household())).digest
    candidate = seal_candidate(store.paths, pack, None, abstention)
    publish_candidate(store.paths, store.judge(candidate), 7)
    return Recaller.open(store.root)


def test_a_snapshot_carries_its_thresholds_and_they_change_the_digest(empty_store: Store) -> None:
    pack = read_manifest(empty_store.candidate(household()))
    directory = seal_candidate(empty_store.paths, pack.digest, None, HIGH)
    manifest = read_manifest(directory)
    assert manifest.digest != pack.digest
    assert pack_digest(manifest) == pack.digest
    found = SnapshotReader.open(directory).calibration
    assert found == Calibration({WORDS: 0.999, WORDS_AND_VECTORS: 0.999}, MEASURES)
    again = seal_candidate(empty_store.paths, pack.digest, None, HIGH)
    assert read_manifest(again).digest == manifest.digest
    remove_tree(empty_store.paths.candidates / pack.digest[:DIGEST_NAME_CHARS])
    bare = seal_candidate(empty_store.paths, pack.digest, None)
    assert ABSTENTION_FILE not in read_manifest(bare).files
    assert SnapshotReader.open(bare).calibration is None


def test_without_a_calibration_nothing_is_said(plain_store: Store) -> None:
    result = Recaller.open(plain_store.root).recall("spare key")
    assert result.answerability is None
    assert "answerability" not in result.to_json()
    assert "answerability" not in result.phase_timing_ms


@pytest.mark.parametrize("dense", [True, False])
def test_a_recall_says_how_sure_it_is_and_no_more(dense_store: Store, dense: bool) -> None:
    profile = RetrievalProfile() if dense else RetrievalProfile(dense_weight=0.0)
    plain = Recaller.open(dense_store.root)
    before = plain.recall("spare key", profile=profile)
    plain.calibration = Calibration.parse(json.dumps(HIGH))
    after = plain.recall("spare key", profile=profile)
    own = [m.support for m in after.memories]
    assert tuple(m._replace(support=None) for m in after.memories) == before.memories
    assert before.answerability is None
    found = after.answerability
    assert found is not None
    assert 0.0 < found.score < 0.999
    assert after.to_json()["answerability"] == {
        "score": found.score, "threshold": 0.999, "abstain": True,
        "signal": WORDS_AND_VECTORS if dense else WORDS, "bar": found.bar,
    }  # fmt: skip
    assert [m["support"] for m in after.to_json()["memories"]] == own
    assert max(score for score in own if score is not None) == found.score
    ranked = [(str(memory.id), memory.final_score) for memory in after.memories]
    assert plain.judge("spare key", 10, profile=profile) == (ranked, found)


def test_published_thresholds_hold_but_for_those_of_another_scale(empty_store: Store) -> None:
    found = sealed(empty_store, LOW).recall("spare key").answerability
    assert found is not None
    assert not found.abstain
    recaller = sealed(empty_store, OF_BEFORE)
    assert recaller.calibration is None
    assert recaller.recall("spare key").answerability is None


def test_each_memory_has_its_own_score_where_a_damaged_one_drops_out(
    empty_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    recaller = sealed(empty_store, LOW)
    query = "spare key and the boiler"
    whole = recaller.recall(query, 5).memories
    describe = SnapshotReader.describe

    def damaged(reader: SnapshotReader, positions: Iterable[int]) -> Any:
        rows = describe(reader, positions)
        for row in rows.values():
            if row["memory_id"] == str(whole[0].id):
                row["content"] = DAMAGED_TEXT
        return rows

    monkeypatch.setattr(SnapshotReader, "describe", damaged)
    found = recaller.recall(query, 4)
    assert "snapshot_damaged" in [w.code for w in found.warnings]
    assert [(m.id, m.support) for m in found.memories] == [(m.id, m.support) for m in whole[1:]]
    assert len({m.support for m in whole}) > 1


def test_nothing_searched_says_nothing_and_nothing_found_scores_zero(plain_store: Store) -> None:
    recaller = Recaller.open(plain_store.root)
    recaller.calibration = Calibration({WORDS: 0.00001}, MEASURES)
    for query, k, scope in (("  ", 10, Scope()), ("key", 0, Scope()), ("key", 10, NOWHERE)):
        assert recaller.recall(query, k, scope=scope).answerability is None
    found = recaller.recall("zymurgy quux").answerability
    assert found == Answerability(0.0, 0.00001, abstain=True, signal=WORDS)


def test_a_signal_that_was_not_calibrated_is_not_judged(dense_store: Store) -> None:
    recaller = Recaller.open(dense_store.root)
    recaller.calibration = Calibration({WORDS: 0.4}, {WORDS: MEASURE})
    found = recaller.recall("spare key")
    assert (found.answerability, found.memories[0].support) == (None, None)
    assert not recaller.calibration.judge(0.4, WORDS).abstain, "at the threshold is not below it"
    for signal in SIGNALS:
        assert not Calibration.observing(MEASURES).judge(0.0, signal).abstain


@pytest.mark.parametrize(
    "text",
    [
        "", "[]", "{}", '{"signals": 3}', '{"signals": {"words": {}}}', '{"signals": {"words": 1}}',
        '{"signals": {"words": {"threshold": "x"}}}', '{"signals": {"words": {"threshold": NaN}}}',
        '{"signals": {"words": {"threshold": 0.5, "bar": 2}}}',
        '{"signals": {"words": {"threshold": 0.5, "measure": {"usual": {}, "direction": ["x"]}}}}',
        '{"signals": {"words": {"threshold": 0.5, "measure": {"usual": {"any": {}}}}}}',
        '{"signals": {"words": {"threshold": 0.5, "measure": {"usual": {}, "direction": []}}}}',
        '{"signals": {"words": {"threshold": 1.5}}}', '{"signals": {"words": {"threshold": -1}}}',
    ],
)  # fmt: skip
def test_what_is_no_calibration_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        Calibration.parse(text)


def test_a_damaged_file_is_a_damaged_snapshot(empty_store: Store) -> None:
    pack = read_manifest(empty_store.candidate(household())).digest
    broken = {"signals": {"words": {"threshold": 7}}}
    directory = seal_candidate(empty_store.paths, pack, None, broken)
    with pytest.raises(SnapshotCorruptError, match="doctor"):
        SnapshotReader.open(directory)


LEXICAL = RetrievalProfile(dense_weight=0.0)
NOWHERE = Scope(wing="nowhere")
ONE = np.array([0.5])


def friends() -> list[MemoryRecord]:
    """Return what two friends say: one painted a sunrise, the other ran a charity race."""
    return renumber(
        [
            *turns(
                "s1",
                "Melanie: hello, how was the week?",
                "Caroline: I ran a charity race for the shelter on Sunday.",
                "Melanie: that is great news.",
                "Caroline: the race made me realise how much the shelter needs.",
                "Melanie: I painted a sunrise over the lake.",
                "Caroline: lovely, where is it now?",
                "Melanie: the sunrise hangs in the hall.",
                wing="friends",
            ),
            *turns("s2", "User: the race condition is in the worker.", "Assistant: I fixed it.",
                   "User: Thanks, deploy the worker.", wing="work"),
            memory("The ferry to the island leaves at nine.", wing="travel"),
        ]
    )  # fmt: skip


@pytest.fixture(scope="module")
def recaller(tmp_path_factory: pytest.TempPathFactory) -> Recaller:
    store = new_store(tmp_path_factory.mktemp("friends") / "house")
    store.publish(friends())
    return Recaller.open(store.root)


def ranked(recaller: Recaller, query: str, mask: Mask | None = None) -> tuple[Any, ...]:
    """What `score_answer` and `read_features` are asked."""
    graph = SnapshotGraph(recaller.reader)
    ranking = rank_alone(recaller.reader, graph, LEXICAL, mask, None, query, 50)
    return recaller.reader, graph, query, mask, ranking


def scored(*asked: Any) -> Scored:
    found = score_answer(*asked, measures=MEASURES)
    assert found is not None
    return found


def score(recaller: Recaller, query: str, mask: Mask | None = None) -> Scored:
    return scored(*ranked(recaller, query, mask))


def with_cosines(recaller: Recaller, query: str, cosines: Sequence[float]) -> Scored:
    """Return the score when the dense leg says the same cosines of whatever it is asked."""
    values = np.resize(np.array(cosines), recaller.reader.count)
    *asked, ranking = ranked(recaller, query)
    scores_at: ScoresAt = lambda positions: values[positions]  # noqa: E731
    return scored(*asked, ranking._replace(dense=Leg(np.arange(3), scores_at)))


def features(recaller: Recaller, query: str) -> Features:
    reader, _, _, mask, ranking = ranked(recaller, query)
    return read_features(reader, query, mask, ranking)


def test_the_right_person_scores_above_the_wrong_one(recaller: Recaller) -> None:
    right = score(recaller, "What did Caroline realise after the charity race?")
    wrong = score(recaller, "What did Melanie realise after the charity race?")
    assert right.attribution > 0.1
    assert wrong.attribution < -0.1
    assert right.score > 2 * wrong.score
    her = score(recaller, "Where does Melanie's painted sunrise hang?")
    other = score(recaller, "Where does Caroline's painted sunrise hang?")
    assert her.attribution == pytest.approx(-other.attribution)
    assert her.attribution > 0


def test_names_that_the_ranking_found_are_not_looked_up_again(recaller: Recaller) -> None:
    *asked, ranking = ranked(recaller, "What did Caroline realise after the charity race?")
    assert [link.start for link in ranking.links] == [9]
    assert scored(*asked, ranking._replace(links=())).attribution == 0.0
    assert scored(*asked, ranking) == scored(*asked, ranking._replace(links=None))
    reader, graph, query = asked[:3]
    shown, one = np.arange(reader.count) > 0, np.array([0])
    rows = Rows(None, shown, shown, hidden=one, stands=one + 1)
    search = Search(
        reader, graph, Query(query, 5, LEXICAL), recaller.inputs_now(), rows=rows, ranker=rank
    )
    hiding = rank(search, query, 50)
    assert hiding.graph is not None
    assert hiding.links is None, "an archive may hide whom the answer is about"


@pytest.mark.parametrize(
    "query",
    ["when does the ferry leave", "who ran the charity race", "Caroline and Melanie: the sunrise",
     "Melanie", "Caroline?",
     # A role is nobody to attribute to.
     "Which worker does the User deploy?", "Assistant: I fixed it",
     # Said in another wing: it speaks neither for nor against anybody here.
     "Did Caroline deploy the worker?"],
)  # fmt: skip
def test_attribution_is_neutral_where_nobody_is_meant(recaller: Recaller, query: str) -> None:
    assert score(recaller, query).attribution == 0.0


def test_what_nobody_wrote_scores_lower_than_what_somebody_did(recaller: Recaller) -> None:
    known = score(recaller, "when does the ferry to the island leave")
    half = score(recaller, "when does the zeppelin to the island leave")
    nothing = score(recaller, "zeppelin timetable quux")
    assert known.score > half.score > nothing.score == 0.0


def test_words_that_only_others_may_see_move_nothing(empty_store: Store) -> None:
    mine = [memory("The ferry to the island leaves at nine.", user="ana")]
    theirs = [
        memory("Island tickets cost twelve.", user="ben"),
        *turns("s1", "Ana: island island", "Ben: the ferry leaves", "Ana: ferry", user="ben"),
    ]
    scores: list[Scored] = []
    for records in (mine, [*mine, *theirs]):
        empty_store.publish(renumber(records))
        recaller = Recaller.open(empty_store.root)
        recaller.calibration = Calibration.observing(MEASURES)
        found = recaller.recall("Did Ben say when the ferry leaves?", scope=Scope(user="ana"))
        assert found.answerability is not None
        mask = np.arange(recaller.reader.count) == 0
        scores.append(score(recaller, "Did Ben say when the ferry leaves?", mask))
        assert scores[-1].score == pytest.approx(found.answerability.score)
    assert scores[0] == scores[1]
    assert scores[0].score > 0.0


def test_turns_that_only_others_may_see_count_for_no_side(empty_store: Store) -> None:
    shared = turns("s1", "Ana: the ferry leaves at nine.", "Ben: good, book the ferry cabin.")
    hidden = turns("s2", *("Ana: yes.", "Ben: no.") * BEST_TURNS, user="ben")
    attributions: list[float] = []
    for records in (shared, [*shared, *hidden]):
        empty_store.publish(renumber(records))
        recaller = Recaller.open(empty_store.root)
        mask = np.arange(recaller.reader.count) < len(shared)
        attributions.append(score(recaller, "Did Ben book the ferry cabin?", mask).attribution)
    assert attributions[0] == attributions[1] > 0.1
    fact = memory("Ferry cabin bookings close at noon.", wing="home")
    empty_store.publish(renumber([*shared, fact]))
    said_by_nobody = score(Recaller.open(empty_store.root), "Did Ana see the ferry leave?")
    assert said_by_nobody.attribution > 0.1, "what nobody says is on nobody's side"


def test_a_vector_makes_up_for_words_and_a_nan_makes_up_for_nothing(recaller: Recaller) -> None:
    query = "when does the ferry leave"
    alone = score(recaller, query)
    near = with_cosines(recaller, query, [0.9])
    far = with_cosines(recaller, query, [-0.5])
    broken = with_cosines(recaller, query, [float("nan")])
    assert (alone.signal, near.signal) == (WORDS, WORDS_AND_VECTORS)
    assert near.support == pytest.approx(
        far.support + WEIGHTS[WORDS_AND_VECTORS][COSINE] * 0.9 / 0.1
    )
    assert near.score > far.score
    assert broken == far
    assert np.isfinite(broken.score)


def test_a_recall_that_searches_summaries_counts_what_they_stand_for(dense_store: Store) -> None:
    recaller = Recaller.open(dense_store.root)
    recaller.calibration = Calibration.observing(MEASURES)
    assert recaller.reader.summaries.size > 0
    query = "which flight was booked for the ninth"
    raw = recaller.recall(query).answerability
    views = RetrievalProfile().replaced(turn_view="summaries")
    found = recaller.recall(query, profile=views)
    assert any("summarized_by" in m.annotations for m in found.memories)
    assert found.answerability is not None
    assert raw is not None
    assert found.answerability.score == pytest.approx(raw.score, abs=0.02)


def test_support_is_the_best_single_memory_not_the_best_of_each() -> None:
    both = Features(
        WORDS_AND_VECTORS, "latin", np.arange(3), np.array([0.0, 0.7, 0.5]),
        np.array([0.5, 0.1, 0.3]), 0.2,
    )  # fmt: skip
    measure = Measure({"any": {name: (0.2, 0.1) for name in FEATURES}})
    weights = WEIGHTS[WORDS_AND_VECTORS]
    by_hand = weights[COSINE] * 5 + weights[COVERAGE] * -1
    assert find_supports(both, measure, None)[1] == pytest.approx(by_hand)
    more = find_supports(both, measure, 0.3) - find_supports(both, measure, None)
    assert more == pytest.approx(weights[LIKENESS] * 1.0)


def test_a_word_that_stands_alone_is_doubted(recaller: Recaller) -> None:
    found = features(recaller, "ferry")
    short = found.coverage.max()
    long = features(recaller, "when does the ferry to the island leave at nine").coverage.max()
    assert short < long < 1.0
    idf = np.log1p((recaller.reader.count - 1 + 0.5) / 1.5)
    assert short == pytest.approx(idf / (idf + DOUBT))
    assert found.known == pytest.approx(short)


def test_chinese_and_japanese_are_one_script_and_what_is_unknown_is_any(recaller: Recaller) -> None:
    scripts = [features(recaller, query).script for query in ("写一首诗", "ひらがな", "стих")]
    assert scripts == ["han", "han", "cyrillic"]
    any_of = {name: (0.5, 0.25) for name in FEATURES}
    assert Measure({"any": any_of}).usual_of("greek") == any_of


def test_attribution_compares_equally_many_turns() -> None:
    many = np.linspace(0.0, 0.9, 50)
    assert find_attribution(ONE, many) == pytest.approx(0.5 - 0.9)
    assert find_attribution(many, np.full(50, 0.3)) == pytest.approx(
        float(np.sort(many)[-BEST_TURNS:].mean()) - 0.3
    )
    assert find_attribution(ONE, np.empty(0)) == find_attribution(np.empty(0), ONE) == 0.0


def test_the_score_by_hand() -> None:
    by_hand = {(4.0, 0.0): 0.25, (7.0, 0.1): 0.5197, (-math.inf, 1.0): 0.0, (math.nan, 0.0): 0.0,
               (-1e9, 0.0): 0.0}  # fmt: skip
    assert [combine(*asked) for asked in by_hand] == pytest.approx([*by_hand.values()], abs=1e-4)
