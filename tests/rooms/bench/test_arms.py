from __future__ import annotations

import gzip
import importlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.arms import Arm, SearchScope, SetContext, list_arms
from bench.arms.ablations import list_ablations
from bench.arms.corpus_views import CorpusViews
from bench.arms.exact_cosine import CosineRetriever, best_positions
from bench.arms.fts_seed import IMPORTANCE_BLEND, Blend, FtsSeed, SeedMode
from bench.arms.keyword import KeywordRetriever, distinct_words
from bench.arms.recalled import GraphOnlyRetriever, RecallRetriever
from bench.arms.reranker import RERANKED
from bench.arms.tiers import CascadeRetriever, RescoredCascadeRetriever, TierRetriever, TierViews
from bench.datasets import Dataset, find_shared, open_dataset, read_baseline, read_corpus
from noctuary.embed import rotation
from noctuary.evaluate.labels import Query, read_queries
from noctuary.evaluate.metrics import ndcg_at_k, recall_at_k, reciprocal_rank
from noctuary.recall import inputs
from noctuary.recall.engine import Recaller
from noctuary.recall.profile import RetrievalProfile
from tests.support.arms import WINGS, ask, build_context, ids, records
from tests.support.store import renumber

TEXTS = ("the cat and the ladder", "payment for the trip", "walnut saddle", "physician radiator")


@pytest.fixture(scope="module")
def context(tmp_path_factory: pytest.TempPathFactory) -> SetContext:
    return build_context(tmp_path_factory.mktemp("arms"), records(200))


def arms_of(context: SetContext) -> dict[str, Arm]:
    return {arm.name: arm for arm in list_arms(context, graph_seed=True)}


def test_every_comparison_names_an_arm_that_exists_and_no_two_arms_share_their_settings(
    context: SetContext,
) -> None:
    arms = arms_of(context)
    for arm in arms.values():
        assert set(arm.against) <= set(arms) - {arm.name}
        assert arm.description
    settings = [json.dumps(arm.settings, sort_keys=True) for arm in arms.values()]
    assert len(settings) == len(set(settings))
    assert arms["noctuary"].against == ("fts_seed", "hybrid_seed")
    assert arms["noctuary"].settings == RetrievalProfile().to_json()
    assert {arm.against for arm in arms.values() if arm.group == "ablation"} == {("noctuary",)}
    assert {a.against for a in arms.values() if a.group == "graph_seed"} == {("hybrid_seed",)}
    timed = {name for name, arm in arms.items() if arm.timed}
    assert timed == {
        "fts_plain", "fts_seed", "fts_importance", "dense", "hybrid_seed", "noctuary",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("name", "changed"),
    [
        ("lexical_only", {"dense_weight": 0.0, "graph_weight": 0.0, "importance_prior": 0.0}),
        ("dense_only", {"lexical_weight": 0.0, "graph_weight": 0.0, "importance_prior": 0.0}),
        ("no_lexical", {"lexical_weight": 0.0}),
        ("no_dense", {"dense_weight": 0.0}),
        ("no_graph", {"graph_weight": 0.0}),
        ("no_sessions", {"session_weight": 0.0}),
        ("no_importance", {"importance_prior": 0.0}),
        ("rrf", {"fusion": "rrf"}),
        ("rrf_no_graph", {"fusion": "rrf", "graph_weight": 0.0}),
        ("rrf_dense_0.3", {"fusion": "rrf", "lexical_weight": 0.7, "dense_weight": 0.3}),
        ("cc_dense_0.9", {"lexical_weight": 0.1, "dense_weight": 0.9}),
        ("graph_weight_2", {"graph_weight": 2.0}),
        ("exact_bonus_0.1", {"exact_match_bonus": 0.1}),
    ],
)
def test_an_ablation_turns_the_knob_of_its_name_and_no_other(
    name: str, changed: dict[str, object]
) -> None:
    shipped = RetrievalProfile().to_json()
    profile = next(a for a in list_ablations() if a.name == name).profile.to_json()
    assert {key: profile[key] for key in profile if profile[key] != shipped[key]} == changed


def test_the_grid_never_asks_one_profile_twice_whatever_ships() -> None:
    for shipped in (
        RetrievalProfile(),
        RetrievalProfile(fusion="rrf"),
        RetrievalProfile(exact_match_bonus=0.1),
    ):
        profiles = [ablation.profile for ablation in list_ablations(shipped)]
        assert shipped not in profiles
        assert len({json.dumps(p.to_json()) for p in profiles}) == len(profiles)
    names = {ablation.name for ablation in list_ablations(RetrievalProfile(fusion="rrf"))}
    assert {"cc", "cc_no_graph"} <= names
    assert not {"rrf", "rrf_no_graph"} & names


@pytest.mark.parametrize("scope", ["all", "wing"])
def test_every_arm_answers_within_its_scope_in_the_order_of_its_scores(
    context: SetContext, scope: SearchScope
) -> None:
    wing_of = {str(row["id"]): row["wing"] for row in context.rows}
    for name, arm in arms_of(replace(context, scope=scope)).items():
        retriever = arm.make()
        assert retriever.name == name
        for text, wing in zip(TEXTS, (*WINGS, None), strict=True):
            hits = retriever.retrieve_hits(ask(text, wing), 7)
            found, scores = [i for i, _ in hits], [score for _, score in hits]
            assert len(found) == len(set(found)) <= 7
            assert set(found) <= set(wing_of)
            assert scores == sorted(scores, reverse=True), name
            assert found or name in {"fts_plain", "fts_seed", "fts_importance", "graph_only",
                                     "lexical_only"}  # fmt: skip
            if scope == "wing" and wing is not None:
                assert {wing_of[i] for i in found} <= {wing}, name
            assert retriever.retrieve_hits(ask(text, wing), 7) == hits
            assert retriever.retrieve_hits(ask(text, wing), 0) == []
        # A plain text names no wing.
        assert retriever.retrieve(TEXTS[0], 5) == ids(retriever, ask(TEXTS[0]), 5)
        assert retriever.retrieve(" ", 5) == []
        assert not retriever.warnings


def test_the_arms_disagree_on_what_their_names_say(context: SetContext) -> None:
    answers = {
        name: [ids(arm.make(), ask(text), 20) for text in TEXTS]
        for name, arm in arms_of(context).items()
    }
    for one, other in (
        ("fts_plain", "fts_seed"),
        ("fts_seed", "fts_importance"),
        ("hybrid_seed", "hybrid_seed_graph_w5"),
        ("noctuary", "no_lexical"),
        ("noctuary", "no_dense"),
        ("noctuary", "no_graph"),
        ("noctuary", "no_importance"),
        ("noctuary", "rrf"),
        ("noctuary", "cc_dense_0.9"),
        ("noctuary", "exact_bonus_0.2"),
    ):
        assert answers[one] != answers[other], (one, other)
    for weightless in ("hybrid_seed_graph_w0", "hybrid_seed_graph_flawed"):
        assert answers[weightless] == answers["hybrid_seed"]


def test_recall_is_asked_with_the_profile_and_its_warnings_are_counted(context: SetContext) -> None:
    profile = RetrievalProfile(dense_weight=0.0, importance_prior=0.0)
    views = CorpusViews(replace(context, scope="wing"))
    retriever = RecallRetriever("no_dense", views, profile, timed=False)
    direct = context.recaller.recall(
        TEXTS[0], 5, profile=profile, scope=views.scope_of(ask("x", "home"))
    )
    hits = retriever.retrieve_hits(ask(TEXTS[0], "home"), 5)
    assert hits == [(str(m.id), m.final_score) for m in direct.memories]
    retriever.retrieve_hits(ask(TEXTS[0], "attic"), 5)
    assert dict(retriever.warnings) == {"unknown_wing": 1}


def test_recall_is_asked_as_the_user_who_owns_most_and_baselines_as_nobody(tmp_path: Path) -> None:
    owned = [r._replace(user="ben" if n < 3 else "ana") for n, r in enumerate(records(12))]
    context = build_context(tmp_path, renumber(owned))
    bens = {str(row["id"]) for row in context.rows[:3]}
    arms = {arm.name: arm.make() for arm in list_arms(context)}
    for name in ("noctuary", "dense_only", "tier_full"):
        found = set(ids(arms[name], ask("cat payment trip walnut"), 12))
        assert found, name
        assert not found & bens, name
        assert not arms[name].warnings
    for name in ("dense", "hybrid_seed"):
        assert bens <= set(ids(arms[name], ask("cat payment trip walnut"), 12))


def test_the_graph_alone_ranks_by_the_arrivals_that_recall_reports(context: SetContext) -> None:
    graph_only = GraphOnlyRetriever("graph_only", CorpusViews(context), RetrievalProfile())
    everything = len(context.rows)
    hits = dict(graph_only.retrieve_hits(ask(TEXTS[0]), everything))
    recalled = context.recaller.recall(TEXTS[0], everything)
    arrivals = {str(m.id): m.graph.score for m in recalled.memories if m.graph is not None}
    assert hits
    assert hits == pytest.approx(arrivals)


def test_a_timed_arm_never_meets_a_vector_that_it_did_not_encode(
    context: SetContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    forgotten: list[str] = []
    monkeypatch.setattr(inputs, "forget_queries", lambda: forgotten.append("x"))
    arms = arms_of(context)
    for count, name in enumerate(("dense", "hybrid_seed", "noctuary")):
        retriever = arms[name].make()
        retriever.retrieve_hits(ask("cat", query_id="1"), 3)
        retriever.retrieve_hits(ask("cat", query_id="1"), 9)  # the untimed, deeper call
        assert len(forgotten) == 2 * count + 1
        retriever.retrieve_hits(ask("dog", query_id="2"), 3)
        assert len(forgotten) == 2 * count + 2
    arms["no_graph"].make().retrieve_hits(ask("fox", query_id="3"), 3)
    assert len(forgotten) == 6


DIM = 8
TEXT = "the feline has a payment"


@pytest.fixture(scope="module")
def turned(tmp_path_factory: pytest.TempPathFactory) -> SetContext:
    made = build_context(tmp_path_factory.mktemp("dense"), records())
    reader, paths = made.recaller.reader, made.recaller.paths
    digest = reader.manifest.encoder_digest
    assert reader.vectors is not None
    assert digest is not None
    fitted = rotation.fit(np.array(reader.vectors), digest)
    rotation.save(paths.rotations / digest, fitted)
    return made


@given(st.lists(st.integers(-3, 3), max_size=40), st.integers(-1, 45), st.integers(0, 2**40 - 1))
def test_the_best_positions_are_those_of_a_full_sort(values: list[int], k: int, bits: int) -> None:
    scores = np.array(values, dtype=np.float32)
    mask = np.array([bool(bits >> i & 1) for i in range(len(values))], dtype=bool)
    everything = sorted(range(len(values)), key=lambda p: (-values[p], p))
    assert best_positions(scores, k).tolist() == everything[: max(k, 0)]
    allowed = [p for p in everything if mask[p]]
    assert best_positions(scores, k, mask).tolist() == allowed[: max(k, 0)]


def test_the_dense_baseline_is_the_exact_cosine_of_every_memory(turned: SetContext) -> None:
    views = CorpusViews(turned)
    query = ask(TEXT)
    vectors, asked = views.vectors.astype(np.float64), views.encode(query).astype(np.float64)
    cosines = vectors @ asked / np.linalg.norm(vectors, axis=1) / np.linalg.norm(asked)
    hits = CosineRetriever("dense", views).retrieve_hits(query, 60)
    assert len(hits) == 60
    by_id = dict(zip(views.snapshot_ids, cosines.tolist(), strict=True))
    assert dict(hits) == pytest.approx(by_id, abs=1e-5)
    recalled = ids(CosineRetriever("dense", views), query, 1)[0]
    assert by_id[recalled] == pytest.approx(max(cosines))


def test_a_tier_scores_by_the_normalised_prefix_of_the_rotated_vectors(turned: SetContext) -> None:
    views = CorpusViews(turned)
    query = ask(TEXT)
    for rotated in (True, False):
        turn = views.rotation.matrix if rotated else np.eye(DIM)
        heads = (views.vectors @ turn)[:, :2]
        head = (views.encode(query) @ turn)[:2]
        expected = heads @ head / np.linalg.norm(heads, axis=1) / np.linalg.norm(head)
        tier = TierRetriever("tier", TierViews(views), 2, rotated=rotated)
        assert tier.index_size_bytes == 60 * 2 * 4
        by_id = dict(zip(views.snapshot_ids, expected.tolist(), strict=True))
        assert dict(tier.retrieve_hits(query, 60)) == pytest.approx(by_id, abs=1e-4)


@pytest.mark.parametrize(("exits", "answers"), [
    (((2, -1.0), (4, -1.0)), 2),
    (((2, 1.1), (4, -1.0)), 4),
    (((2, 1.1), (4, 1.1)), DIM),
])  # fmt: skip
def test_a_cascade_answers_with_the_first_tier_that_is_sure_enough(
    turned: SetContext, exits: tuple[tuple[int, float], ...], answers: int
) -> None:
    tiers, query = TierViews(CorpusViews(turned)), ask(TEXT)
    cascade = CascadeRetriever("cascade", tiers, exits)
    alone = TierRetriever("tier", tiers, answers)
    assert cascade.retrieve_hits(query, 10) == alone.retrieve_hits(query, 10)
    assert dict(cascade.exits) == {answers: 1}


def test_a_rescored_cascade_orders_the_short_tiers_list_by_full_cosines(turned: SetContext) -> None:
    tiers, query = TierViews(CorpusViews(turned)), ask(TEXT)
    rescored = RescoredCascadeRetriever("rescored", tiers, 2, 12)
    shortlist = ids(TierRetriever("tier", tiers, 2), query, 12)
    full = TierRetriever("full", tiers, None).retrieve_hits(query, 60)
    hits = rescored.retrieve_hits(query, 12)
    assert [i for i, _ in hits] == [i for i, _ in full if i in shortlist]
    assert dict(hits) == pytest.approx({i: s for i, s in full if i in shortlist})
    assert hits[:3] == rescored.retrieve_hits(query, 3)
    # A shortlist of everything is the full tier.
    everything = RescoredCascadeRetriever("rescored", tiers, 2, 60)
    assert ids(everything, query, 60) == [i for i, _ in full]


ROWS = [
    (0, "the cat sat", "facts", "pets", "feline", 0.5),
    (1, "the dog sat", "facts", "", "", 0.5),
    (2, "the cat and the dog", "decisions", "", "", 0.9),
    (3, "the cats \ud800 100%", "facts", "", "", 0.1),
]


@pytest.fixture
def seed() -> FtsSeed:
    return FtsSeed.build(ROWS)


def positions(found: list[tuple[int, float]]) -> list[int]:
    return [position for position, _ in found]


def test_or_searches_the_content_without_stems(seed: FtsSeed) -> None:
    assert set(positions(seed.search("cat", 10))) == {0, 2}
    assert set(positions(seed.search("cat dog", 10))) == {0, 1, 2}
    assert positions(seed.search("feline pets decisions", 10)) == []


def test_seed_wants_every_word_then_any(seed: FtsSeed) -> None:
    assert positions(seed.search("cat dog", 10, "and_then_or")) == [2]
    assert set(positions(seed.search("cat zebra", 10, "and_then_or"))) == {0, 2}


def test_seed_searches_all_fields(seed: FtsSeed) -> None:
    assert positions(seed.search("feline pets facts cat", 10, "and_then_or")) == [0]


def test_a_filter_acts_before_the_limit(seed: FtsSeed) -> None:
    best = positions(seed.search("the sat", 4))
    assert positions(seed.search("the sat", 1, allowed=lambda p: p != best[0])) == [best[1]]
    assert seed.search("the sat", 4, allowed=lambda p: False) == []


def test_a_filter_that_hides_every_full_match_lets_partial_ones_in(seed: FtsSeed) -> None:
    found = seed.search("cat dog", 10, "and_then_or", allowed=lambda p: p != 2)
    assert set(positions(found)) == {0, 1}


def test_seed_falls_back_to_like_when_fts_refuses(seed: FtsSeed) -> None:
    assert positions(seed.search("cat", 1, "and_then_or")) == [2]
    refused = FtsSeed.build([(0, "a\x00b", "", "", "", 0.4), (1, "x a\x00b y", "", "", "", 0.8)])
    # FTS5 ends the query at a NUL: "unterminated string".
    assert positions(refused.search("a\x00b", 5, "and_then_or")) == [1, 0]


@pytest.mark.parametrize("mode", ["or", "and_then_or"])
@pytest.mark.parametrize("query", ["", " ", '"', "\ud800", "NEAR(cat", "cat AND", "a*", "col:x"])
def test_odd_queries_do_not_raise(seed: FtsSeed, query: str, mode: SeedMode) -> None:
    assert isinstance(seed.search(query, 5, mode), list)
    assert seed.search("cat", 0, mode) == []


BICYCLES: list[dict[str, Any]] = [
    {"id": 30, "content": "The red bicycle needs a new tyre.", "wing": "home"},
    {"id": 10, "content": "A red kettle and a red lamp.", "wing": "work", "importance": 0.9},
    {"id": 20, "content": "The bicycle shop closes at six.", "wing": "work", "importance": None},
]


def views(rows: list[dict[str, Any]], scope: SearchScope = "all") -> CorpusViews:
    """Views without a snapshot: keyword arms look at the rows alone."""
    nothing = cast("Recaller", None)
    return CorpusViews(SetContext(Dataset("tiny", Path()), rows, nothing, scope))


def plain(rows: list[dict[str, Any]], scope: SearchScope = "all") -> KeywordRetriever:
    return KeywordRetriever("fts_plain", views(rows, scope), "or")


def test_within_a_wing_the_whole_corpus_is_ranked_and_its_rows_are_kept() -> None:
    assert ids(plain(BICYCLES, "wing"), ask("red bicycle", "home"), 3) == ["30"]
    assert sorted(ids(plain(BICYCLES, "wing"), ask("red bicycle", "work"), 3)) == ["10", "20"]
    whole = dict(plain(BICYCLES).retrieve_hits(ask("red bicycle"), 3))
    assert dict(plain(BICYCLES, "wing").retrieve_hits(ask("red bicycle", "home"), 3)) == {
        "30": whole["30"]
    }
    # Row 30 has every word: the seed does not widen its search, so that the other wing gets none.
    seed = KeywordRetriever("fts_seed", views(BICYCLES, "wing"), "and_then_or")
    assert ids(seed, ask("red bicycle", "work"), 3) == []


def test_scores_are_the_blends_of_their_documents() -> None:
    index = FtsSeed.build([(0, "red red", "", "", "", 0.9), (1, "red lamp post", "", "", "", 0.2)])
    bm25 = dict(index.search("red", 2, "and_then_or", Blend(1.0, 0.0)))
    rows: list[dict[str, Any]] = [
        {"id": 1, "content": "red red", "importance": 0.9},
        {"id": 2, "content": "red lamp post", "importance": 0.2},
    ]
    seed = KeywordRetriever("fts_seed", views(rows), "and_then_or")
    by_importance = KeywordRetriever("fts_importance", views(rows), "and_then_or", IMPORTANCE_BLEND)
    assert dict(seed.retrieve_hits(ask("red"), 2)) == pytest.approx(
        {"1": 0.7 * bm25[0] + 0.3 * 0.9, "2": 0.7 * bm25[1] + 0.3 * 0.2}
    )
    assert dict(by_importance.retrieve_hits(ask("red"), 2)) == pytest.approx(
        {"1": 0.4 * bm25[0] + 0.6 * 0.9, "2": 0.4 * bm25[1] + 0.6 * 0.2}
    )


def test_a_word_counts_once_however_often_the_query_says_it() -> None:
    assert distinct_words("Red, red RED kettle's") == "red kettle s"
    once, often = ask("shop bicycle red"), ask("shop red red red red red bicycle")
    assert ids(plain(BICYCLES), often, 3) == ids(plain(BICYCLES), once, 3)


@pytest.mark.parametrize(("scope", "search"), [("all", "all wings"), ("wing", "own wing")])
def test_the_plain_baseline_reproduces_the_figures_that_locomo_states(
    scope: SearchScope, search: str
) -> None:
    shared = find_shared()
    if shared is None or not (shared / "data" / "locomo").is_dir():
        pytest.skip("needs ../shared/data/locomo (or NOCTUARY_SHARED)")
    dataset = open_dataset(shared / "data" / "locomo")
    rows = read_corpus(dataset)
    queries = read_queries(dataset.queries, {str(row["id"]) for row in rows}).ranked
    baseline = plain(rows, scope)
    rankings = [ids(baseline, query, 100) for query in queries]
    for stratum, stated in read_baseline(dataset, search).items():
        chosen = [
            _values(query, ranking)
            for query, ranking in zip(queries, rankings, strict=True)
            if stratum in ("ALL", query.stratum)
        ]
        assert len(chosen) == stated["n"]
        means = [round(sum(column) / len(chosen), 3) for column in zip(*chosen, strict=True)]
        names = ("recall@5", "recall@10", "ndcg@10", "mrr@100")
        assert means == [stated[name] for name in names], stratum


def _values(query: Query, ranking: list[str]) -> tuple[float, ...]:
    relevant = query.relevant_ids
    return (
        recall_at_k(ranking, relevant, 5),
        recall_at_k(ranking, relevant, 10),
        ndcg_at_k(ranking, relevant, 10),
        reciprocal_rank(ranking, relevant, 100),
    )


ASKED = "the cat and the ladder"


@pytest.fixture(scope="module")
def reranked(tmp_path_factory: pytest.TempPathFactory) -> SetContext:
    made = build_context(tmp_path_factory.mktemp("reranked"), records())
    return replace(made, reranker=str(write_cross_encoder(tmp_path_factory.mktemp("model"))))


def write_cross_encoder(directory: Path) -> Path:
    """Write a cross-encoder of one tiny layer with random weights."""
    import torch

    # Loaded by name: it ships no types that a checker could follow.
    transformers: Any = importlib.import_module("transformers")
    words = ["cat", "feline", "ladder", "lantern", "payment", "trip", "walnut", "saddle", "number"]
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    vocabulary = {word: number for number, word in enumerate([*special, *words])}
    torch.manual_seed(5)
    config = transformers.BertConfig(
        vocab_size=len(vocabulary), hidden_size=16, num_hidden_layers=1,
        num_attention_heads=2, intermediate_size=16, max_position_embeddings=64, num_labels=1,
        initializer_range=1.0,
    )  # fmt: skip
    transformers.BertForSequenceClassification(config).save_pretrained(directory)
    transformers.BertTokenizerFast(vocab=vocabulary).save_pretrained(directory)
    return directory


def test_the_head_is_ordered_by_the_cross_encoder_and_the_tail_kept(reranked: SetContext) -> None:
    from sentence_transformers import CrossEncoder

    arms = {arm.name: arm for arm in list_arms(reranked)}
    base = ids(arms["noctuary"].make(), ask(ASKED), 50)
    hits = arms["reranker"].make().retrieve_hits(ask(ASKED), 50)
    content = {str(row["id"]): row["content"] for row in reranked.rows}
    assert reranked.reranker is not None
    model = CrossEncoder(reranked.reranker, local_files_only=True)
    scores = model.predict([(ASKED, content[i]) for i in base[:RERANKED]])
    expected = dict(zip(base, [float(s) for s in scores], strict=False))
    assert dict(hits[:RERANKED]) == pytest.approx(expected)
    found = [i for i, _ in hits]
    assert found[:RERANKED] != base[:RERANKED]
    assert found[RERANKED:] == base[RERANKED:]
    values = [score for _, score in hits]
    assert values == sorted(values, reverse=True)
    assert found[:3] == ids(arms["reranker"].make(), ask(ASKED), 3)
    assert arms["reranker"].make().retrieve_hits(ask(ASKED), 0) == []


README = """# tiny
| search | stratum | queries | R@5 | R@10 | nDCG@10 | MRR | all@10 |
|---|---|---|---|---|---|---|---|
| all wings | ALL | 3 | 0.1 | 0.200 | 0.300 | 0.400 | 0.5 |
| own wing, seq <= as_of_seq | ALL | 3 | 0.9 | 0.9 | 0.9 | 0.9 | 0.9 |
| own wing | ALL | 3 | 0.6 | 0.7 | 0.8 | 0.9 | 1.0 |
| own wing | multi-hop | 1 | 0.0 | 0.1 | 0.2 | 0.3 | 0.4 |
"""


def make_set(directory: Path, corpus: bytes = b'{"id": 1, "content": "x"}\n') -> Path:
    directory.mkdir()
    (directory / "corpus.jsonl.gz").write_bytes(gzip.compress(corpus))
    (directory / "queries.jsonl").write_text("", encoding="utf-8")
    return directory


def test_the_baseline_is_read_from_the_row_of_the_search_asked_for(tmp_path: Path) -> None:
    dataset = open_dataset(make_set(tmp_path / "tiny"))
    assert read_baseline(dataset, "all wings") == {}
    (dataset.directory / "README.md").write_text(README, encoding="utf-8")
    assert read_baseline(dataset, "all wings") == {
        "ALL": {"n": 3, "recall@5": 0.1, "recall@10": 0.2, "ndcg@10": 0.3, "mrr@100": 0.4}
    }
    own = read_baseline(dataset, "own wing")
    assert list(own) == ["ALL", "multi-hop"]
    assert own["ALL"]["recall@5"] == 0.6
