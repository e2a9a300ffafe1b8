"""The stage: the owner's labelled queries become thresholds, and the snapshot carries them."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from noctuary.core.errors import EncoderError
from noctuary.core.manifest import read_manifest
from noctuary.core.settings import EvaluationSettings, RecallSettings, Settings
from noctuary.core.store import StorePaths
from noctuary.core.types import SILENT
from noctuary.evaluate.abstain import (
    LENIENT,
    LET_THROUGH,
    MAX_RECALL_LOSS,
    MIN_ANSWERABLE,
    OWN_METRIC,
    find_asker,
    scope_mask,
)
from noctuary.evaluate.decide import (
    DROP_METRICS,
    KEPT_PER_WRITE,
    MIN_HALF,
    SERVED,
    WORDS_ARM,
    KeptAnswers,
    ProfileRetriever,
    challenge,
    find_drops,
    list_arms,
)
from noctuary.evaluate.labels import Query
from noctuary.evaluate.metrics import HEADLINE_METRIC, Scores, compare
from noctuary.evaluate.queries import LABELLED, UNANSWERABLE, read_everyday
from noctuary.evaluate.run import RunPlan, run_retriever
from noctuary.recall.engine import Recaller
from noctuary.recall.inputs import Inputs
from noctuary.recall.profile import RetrievalProfile
from noctuary.recall.reader import SnapshotReader
from noctuary.recall.result import WORDS, WORDS_AND_VECTORS
from noctuary.sources.corpus import read_records
from noctuary.work.content import ContentStore
from noctuary.work.stage import StageOutput
from noctuary_assets.evaluate import (
    ABSTENTION_CALIBRATION,
    calibrate_abstention,
    decide_fusion,
    evaluate_pack,
    read_calibration,
    read_runs,
    served_profile,
)
from noctuary_assets.ingest import export_memories
from noctuary_assets.night import CONTENT, MEMORIES, Night
from noctuary_assets.pack import SERVING_PACK
from noctuary_assets.publish import seal_snapshot_candidate
from tests.support.archive_file import write_archive
from tests.support.lean import write_encoder
from tests.support.store import Store, household, memory, renumber

THINGS = ("kettle", "ladder", "violin", "harbour", "lantern", "orchard", "saddle", "tunnel")
ACTS = ("repaired", "painted", "sold", "borrowed")
COUNT = len(THINGS) * len(ACTS)
NOTHING = ("Which zeppelin was chartered?", "Where is the observatory?", "Who won the regatta?")


def texts(number: int) -> tuple[str, str]:
    """Return a memory and a question that it answers."""
    thing, act = THINGS[number % len(THINGS)], ACTS[number // len(THINGS)]
    return f"last week the {thing} was {act} by the neighbours", f"Was the {thing} {act}?"


def write_source(folder: Path, questions: Iterable[dict[str, Any]], count: int = COUNT) -> Path:
    folder.mkdir(parents=True)
    date = "2026-01-05T10:00:00Z"
    rows = [{"id": n + 1, "content": texts(n)[0], "created_at": date} for n in range(count)]
    for name, lines in (("corpus.jsonl", rows), ("queries.jsonl", list(questions))):
        text = "".join(json.dumps(line) + "\n" for line in lines)
        (folder / name).write_text(text, encoding="utf-8")
    return folder


def questions(answerable: int = COUNT, unanswerable: int = len(NOTHING)) -> list[dict[str, Any]]:
    asked = [(f"q{n}", texts(n)[1], [n + 1]) for n in range(answerable)]
    asked += [(f"n{n}", NOTHING[n], []) for n in range(unanswerable)]
    return [{"query_id": i, "text": text, "relevant_ids": ids} for i, text, ids in asked]


class Made:
    """A store whose pack is there, and the stages up to the sealed candidate run on it."""

    def __init__(
        self, tmp_path: Path, asked: list[dict[str, Any]], *, dense: bool, count: int = COUNT
    ) -> None:
        root = tmp_path / "house"
        store = Store(StorePaths(root), write_encoder(root / "encoders") if dense else None)
        settings = Settings(evaluation=EvaluationSettings(exact_queries=4))
        source = write_source(tmp_path / "source", asked, count)
        self.night = Night(store.paths, source, settings)
        export_memories(self.night)
        pack = store.candidate(read_records(self.night.work(MEMORIES)))
        digest = read_manifest(pack).digest
        self.night.run(SERVING_PACK, {}, lambda: StageOutput(count, {"digest": digest}))
        evaluate_pack(self.night)
        self.decision = decide_fusion(self.night)
        self.table = self.night.work(*ABSTENTION_CALIBRATION.outputs)

    def signals(self) -> dict[str, Any]:
        return read_calibration(self.night)["sealed"]["signals"]

    def sealed(self) -> SnapshotReader:
        sealed = read_calibration(self.night)["sealed"]
        result = seal_snapshot_candidate(self.night, self.decision, sealed)
        name = str(result.facts["digest"])[:16]
        return SnapshotReader.open(self.night.paths.candidates / name)


@pytest.mark.parametrize("dense", [False, True])
def test_the_night_chooses_a_threshold_that_keeps_the_recall(tmp_path: Path, dense: bool) -> None:
    made = Made(tmp_path, questions(), dense=dense)
    result = calibrate_abstention(made.night)
    signals = made.signals()
    assert set(signals) == {WORDS, *([WORDS_AND_VECTORS] if dense else [])}
    for name, found in signals.items():
        assert (found["n_answerable"], found["n_unanswerable"]) == (COUNT, len(NOTHING))
        assert found["auroc"] == 1.0
        assert found["recall_kept"] >= (1 - MAX_RECALL_LOSS) * found["recall"]
        assert result.facts[f"threshold {name}"] == found["threshold"] > 0.0
    assert signals[WORDS]["unanswerable_abstained"] == 1.0
    calibration = made.sealed().calibration
    assert calibration is not None
    assert calibration.thresholds == {name: f["threshold"] for name, f in signals.items()}
    # Nothing that is sealed or told quotes a query.
    written = json.dumps([read_calibration(made.night), result.facts])
    assert not [w for w in (*THINGS, "zeppelin", "observatory", "regatta") if w in written]


def test_the_same_night_twice_does_nothing_and_gives_the_same_bytes(tmp_path: Path) -> None:
    made = Made(tmp_path, questions(unanswerable=0), dense=False)
    first = calibrate_abstention(made.night)
    assert made.signals()[WORDS]["auroc"] is None
    assert "no unanswerable query" in first.facts["reason"]
    text = made.table.read_bytes()
    second = calibrate_abstention(made.night)
    assert (first.reused, second.reused) == (False, True)
    assert first.digest == second.digest
    made.table.unlink()
    assert not calibrate_abstention(made.night).reused
    assert made.table.read_bytes() == text


@pytest.mark.parametrize("dense", [False, True])
def test_with_few_labels_prompts_and_own_questions_calibrate(tmp_path: Path, dense: bool) -> None:
    made = Made(tmp_path, questions(MIN_ANSWERABLE - 1), dense=dense)
    result = calibrate_abstention(made.night)
    signals = made.signals()
    assert set(signals) == {WORDS, *([WORDS_AND_VECTORS] if dense else [])}
    for name, found in signals.items():
        assert 0.0 <= found["bar"] <= found["threshold"] <= 1.0
        assert found["prompts"] == len(read_everyday())
        most = LENIENT if name == WORDS_AND_VECTORS else LET_THROUGH
        assert found["prompts_let_through"] <= most * found["prompts"]
        # Its own questions repeat words: they have a say only beside vectors.
        assert found.get("metric") == (OWN_METRIC if name == WORDS_AND_VECTORS else None)
    assert "everyday prompts reach it" in result.facts["reason"]
    recaller = Recaller(made.night.paths, made.sealed(), "candidate")
    lexical = RetrievalProfile(dense_weight=0.0)
    asked = {"Was the kettle repaired by the neighbours?": False, "write a haiku on pens": True}
    for text, abstains in asked.items():
        judged = recaller.recall(text, 3, profile=lexical).answerability
        assert judged is not None
        assert judged.abstain is abstains


def test_a_labelled_query_that_another_signal_answers_calibrates_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = Made(tmp_path, questions(), dense=True)
    ask, broken = Inputs.query_vector, texts(3)[1]

    def query_vector(world: Inputs, text: str, within_ms: float = math.inf) -> Any:
        if text == broken:
            raise EncoderError("one text that the model cannot represent")
        return ask(world, text, within_ms)

    monkeypatch.setattr(Inputs, "query_vector", query_vector)
    calibrate_abstention(made.night)
    metrics = {name: found["metric"] for name, found in made.signals().items()}
    assert metrics == {WORDS_AND_VECTORS: OWN_METRIC, WORDS: HEADLINE_METRIC}
    said = {text.partition(":")[0]: text for text in read_calibration(made.night)["said"]}
    # Why the labels were not heeded, and the prompts once.
    assert "some labelled queries are answered by another signal" in said[WORDS_AND_VECTORS]
    assert [text.count("prompts") for text in said.values()] == [1, 1]


@pytest.mark.parametrize(
    ("owners", "asker"),
    [
        (("ana", "ana", "ben", "ben", "ben", "eva", "eva"), "ben"),
        ((None, None, None, "ana", "ben"), None),
        ((None, "ana", "ana"), "ana"),
        ((None,), None),
    ],
)
def test_prompts_are_asked_for_whoever_has_most_memories(
    empty_store: Store, owners: tuple[str | None, ...], asker: str | None
) -> None:
    empty_store.publish(renumber([memory(f"a tea {n}", user=u) for n, u in enumerate(owners)]))
    reader = Recaller.open(empty_store.root).reader
    assert find_asker(reader) == asker
    mask = scope_mask(reader, asker)
    assert mask is None or mask.any()


def test_an_empty_hand_of_memories_still_says_what_is_usual(tmp_path: Path) -> None:
    made = Made(tmp_path, questions(0), dense=False, count=3)
    found = calibrate_abstention(made.night)
    assert made.signals()[WORDS]["threshold"] > 0.0
    assert "there are 0 labelled queries, and 20 are needed" in found.facts["reason"]
    assert not any("auroc" in told for told in made.signals().values())


@pytest.mark.parametrize(
    ("name", "fields"),
    [
        ("sessions_0", {"session_weight": 0.0}),
        ("graph_0", {"graph_weight": 0.0}),
        ("graph_2", {"graph_weight": 2.0}),
        ("rrf", {"fusion": "rrf"}),
        ("cc_dense_0.3", {"fusion": "cc", "dense_weight": 0.3, "lexical_weight": 0.7}),
    ],
)
def test_a_challenger_changes_the_fields_of_its_name_and_no_other(
    name: str, fields: dict[str, object]
) -> None:
    served = RetrievalProfile()
    changed = challenge(name, served)
    assert changed == fields
    plain, found = served.to_json(), served.replaced(**changed).to_json()
    differing = {key: found[key] for key in found if found[key] != plain[key]}
    assert differing == {key: value for key, value in fields.items() if plain[key] != value}
    assert differing


def test_a_night_measures_recall_without_sessions() -> None:
    profiles = list_arms(RetrievalProfile())
    assert next(iter(profiles.items())) == (SERVED, RetrievalProfile())
    assert profiles["sessions_0"].session_weight == 0.0
    assert profiles["sessions_0"].graph_weight == RetrievalProfile().graph_weight > 0.0
    # Where the store asks no sessions anyway there is nothing to challenge.
    assert "sessions_0" not in list_arms(RetrievalProfile(session_weight=0.0))


def test_what_was_adopted_is_served(tmp_path: Path) -> None:
    adopted = challenge("sessions_0", RetrievalProfile())
    assert served_profile(served_night(tmp_path)) == RetrievalProfile()
    assert served_profile(served_night(tmp_path), adopted).session_weight == 0.0
    # What a person sets wins over what a night found.
    own = Settings(profiles={"default": {"session_weight": 0.5}})
    assert served_profile(served_night(tmp_path, own), adopted).session_weight == 0.5


N = 60
RNG = np.random.default_rng(4)


def scores(values: NDArray[np.float64], strata: tuple[str, ...] | None = None) -> Scores:
    n = len(values)
    return Scores(
        name="x",
        metrics=DROP_METRICS,
        query_ids=tuple(f"q{i}" for i in range(n)),
        strata=strata or ("all",) * n,
        values=np.stack([values, values], axis=1),
    )


def drops(loss: float, strata: tuple[str, ...] | None = None) -> tuple[list[str], int]:
    """Compare a serving snapshot with one that loses `loss` on a third of the queries."""
    before = RNG.uniform(0.5, 1.0, N)
    after = before - np.where(np.arange(N) % 3 == 0, loss, 0.0)
    comparison = compare([(scores(after, strata), scores(before, strata))])[0]
    found, tested = find_drops([("labelled", comparison)])
    return [drop.group for drop in found], tested


HALVES = tuple("ab"[i % 2] for i in range(N))


@pytest.mark.parametrize(
    ("loss", "strata", "groups", "tested"),
    [
        (0.0, None, set[str](), 2),
        (-0.4, None, set[str](), 2),
        (0.4, None, {"labelled"}, 2),
        (0.4, HALVES, {"labelled", "labelled: a", "labelled: b"}, 6),
    ],
    ids=["no-change", "a-gain", "a-loss-in-both-metrics", "strata-where-there-are-several"],
)
def test_a_loss_is_found_and_a_gain_is_no_drop(
    loss: float, strata: tuple[str, ...] | None, groups: set[str], tested: int
) -> None:
    found, counted = drops(loss, strata)
    assert (set(found), counted) == (groups, tested)
    assert len(found) == 2 * len(groups)


def test_a_loss_in_one_small_stratum_is_seen_although_the_whole_barely_moves() -> None:
    strata = ("rare",) * 12 + ("common",) * 200
    before = np.ones(212)
    after = before.copy()
    after[:12] = 0.0
    noise = RNG.normal(0.0, 0.2, 200)
    after[12:] += noise - noise.mean() + 0.06
    comparison = compare([(scores(after, strata), scores(before, strata))])[0]
    found, _ = find_drops([("labelled", comparison)])
    assert {drop.group for drop in found} == {"labelled: rare"}
    assert all(drop.high < 0 and drop.n == 12 for drop in found)


def test_holm_is_taken_over_everything_together() -> None:
    """Alone p = .03 would count; among eleven groups without a change it does not."""
    weak = np.zeros(N)
    weak[:7] = -0.3
    weak[7] = 0.3
    before = np.full(N, 0.5)
    loss = compare([(scores(before + weak), scores(before))])[0]
    calm = compare([(scores(before), scores(before))])[0]
    p_value = loss.overall["recall@10"].p_value
    assert 0.02 < p_value < 0.08
    assert find_drops([("labelled", loss), *((f"g{i}", calm) for i in range(11))])[0] == []


def test_one_query_or_none_cannot_show_a_loss() -> None:
    assert find_drops([]) == ([], 0)
    one = compare([(scores(np.zeros(1)), scores(np.ones(1)))])[0]
    assert find_drops([("labelled", one)])[0] == []


PLAN = RunPlan(k=3, depth=5, timed=False)
STOPPED_AT = KEPT_PER_WRITE
ASKED = ("key", "feline", "Atlas", "Nina", "boiler", "door code", "Lisbon flight", "nothing known")
QUERIES = [
    Query(
        query_id=f"q{i}",
        text=f"{ASKED[i % len(ASKED)]} {i}",
        stratum="x",
        relevant_ids=("101",),
        extras={"user": ("ana", "ben", None)[i % 3]},
    )
    for i in range(STOPPED_AT + 20)
]


def kept_in(store: Store, kind: str = "x:1") -> KeptAnswers:
    return KeptAnswers(ContentStore(store.paths.work / CONTENT, kind))


class _StopsAt:
    """Ctrl-C once so many answers are written down."""

    def __init__(self, count: int) -> None:
        self._count = count

    def update(self, task: str, done: int, total: int) -> None:
        if done == self._count:
            raise KeyboardInterrupt


def test_what_a_stopped_evaluation_was_answered_is_not_asked_again(dense_store: Store) -> None:
    recaller = Recaller.open(dense_store.root)
    served = ProfileRetriever("served", recaller, RetrievalProfile())
    with pytest.raises(KeyboardInterrupt):
        kept_in(dense_store).ask([served], QUERIES, PLAN, _StopsAt(STOPPED_AT))
    again = kept_in(dense_store)
    run = again.ask([served], QUERIES, PLAN, SILENT)["served"]
    assert again.reused == STOPPED_AT
    assert run == run_retriever(served, QUERIES, PLAN)
    whole = kept_in(dense_store)
    assert whole.ask([served], QUERIES, PLAN, SILENT) == {"served": run}
    assert whole.reused == len(QUERIES)
    for other, kind, plan in (
        (served.profile.replaced(lexical_weight=0.1), "x:1", PLAN),
        (served.profile, "x:2", PLAN),
        (served.profile, "x:1", replace(PLAN, depth=4)),
    ):
        foreign = kept_in(dense_store, kind)
        foreign.ask([ProfileRetriever("other", recaller, other)], QUERIES[:9], plan, SILENT)
        assert foreign.reused == 0


def test_arms_that_share_legs_answer_as_each_alone(dense_store: Store) -> None:
    recaller = Recaller.open(dense_store.root)
    arms = [
        ProfileRetriever(name, recaller, profile)
        for name, profile in list_arms(RetrievalProfile()).items()
    ]
    together = kept_in(dense_store).ask(arms, QUERIES[:30], PLAN, SILENT)
    alone = {arm.name: run_retriever(arm, QUERIES[:30], PLAN) for arm in arms}
    assert together == alone
    assert len({run.rankings for run in alone.values()}) > 5, "the arms differ"


def test_too_few_labels_for_a_decision_ask_the_served_arm_and_words(tmp_path: Path) -> None:
    made = Made(tmp_path, questions(), dense=True)
    runs = read_runs(made.night)
    assert {group: set(arms) for group, arms in runs.items()} == {
        LABELLED: {SERVED, WORDS_ARM},
        UNANSWERABLE: {SERVED},
    }
    said = f"{COUNT} queries can decide and {2 * MIN_HALF} are needed"
    assert said in made.decision.facts["reason"]


def test_another_snapshot_user_or_archive_is_asked_anew(dense_store: Store) -> None:
    def reused(queries: list[Query]) -> int:
        retriever = ProfileRetriever("served", Recaller.open(dense_store.root), RetrievalProfile())
        kept = kept_in(dense_store)
        kept.ask([retriever], queries, PLAN, SILENT)
        return kept.reused

    reused(QUERIES[:9])
    assert reused(QUERIES[:9]) == 9
    assert reused([replace(query, extras={"user": "zoe"}) for query in QUERIES[:9]]) == 0
    dense_store.publish(household()[:-1])
    assert reused(QUERIES[:9]) == 0
    assert reused(QUERIES[:9]) == 9
    reader = Recaller.open(dense_store.root).reader
    write_archive(dense_store.paths.archive, reader, {"p": {"101": "108"}}, {"p": [(1, None)]})
    assert reused(QUERIES[:9]) == 0


def test_no_file_holds_a_question(dense_store: Store) -> None:
    retriever = ProfileRetriever("served", Recaller.open(dense_store.root), RetrievalProfile())
    secret = replace(QUERIES[0], text="xylophone-4711 key")
    kept_in(dense_store).ask([retriever], [secret], PLAN, SILENT)
    files = list((dense_store.paths.work / CONTENT).rglob("*.arrow"))
    assert files
    assert not [path for path in files if b"xylophone" in path.read_bytes()]


def served_night(tmp_path: Path, settings: Settings | None = None) -> Night:
    return Night(StorePaths(tmp_path), tmp_path / "memory.db", settings or Settings())


def test_every_layer_of_the_settings_and_what_was_adopted_count(tmp_path: Path) -> None:
    settings = Settings(
        recall=RecallSettings(profile="mine", importance_prior=0.1),
        profiles={"default": {"depth": 40}, "mine": {"mmr_lambda": 0.3}},
    )
    own = {"fusion": "rrf", "importance_prior": 0.1, "depth": 40, "mmr_lambda": 0.3}
    found = served_profile(served_night(tmp_path, settings), {"fusion": "rrf"})
    assert found == RetrievalProfile(**own)


def test_what_only_watches_is_off(tmp_path: Path) -> None:
    """So that a night writes no query into the replay log, and measures nothing anew for it."""
    watching = {"explain": True, "candidate_trace": True, "replay_log": True}
    settings = Settings(profiles={"default": watching})
    assert served_profile(served_night(tmp_path, settings)) == RetrievalProfile()
