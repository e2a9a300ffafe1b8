from __future__ import annotations

import gzip
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
from bench.arms.keyword import KeywordRetriever
from bench.datasets import Dataset, find_shared, open_dataset, read_baseline, read_corpus
from noctuary.evaluate.labels import Query, read_queries
from noctuary.evaluate.metrics import ndcg_at_k, recall_at_k, reciprocal_rank
from noctuary.recall.engine import Recaller
from noctuary.recall.profile import RetrievalProfile
from tests.support.arms import WINGS, ask, build_context, ids, records

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


@given(st.lists(st.integers(-3, 3), max_size=40), st.integers(-1, 45), st.integers(0, 2**40 - 1))
def test_the_best_positions_are_those_of_a_full_sort(values: list[int], k: int, bits: int) -> None:
    scores = np.array(values, dtype=np.float32)
    mask = np.array([bool(bits >> i & 1) for i in range(len(values))], dtype=bool)
    everything = sorted(range(len(values)), key=lambda p: (-values[p], p))
    assert best_positions(scores, k).tolist() == everything[: max(k, 0)]
    allowed = [p for p in everything if mask[p]]
    assert best_positions(scores, k, mask).tolist() == allowed[: max(k, 0)]


def test_the_dense_baseline_is_the_exact_cosine_of_every_memory(context: SetContext) -> None:
    views = CorpusViews(context)
    query, count = ask(TEXTS[1]), len(context.rows)
    vectors, asked = views.vectors.astype(np.float64), views.encode(query).astype(np.float64)
    cosines = vectors @ asked / np.linalg.norm(vectors, axis=1) / np.linalg.norm(asked)
    hits = CosineRetriever("dense", views).retrieve_hits(query, count)
    assert len(hits) == count
    by_id = dict(zip(views.snapshot_ids, cosines.tolist(), strict=True))
    assert dict(hits) == pytest.approx(by_id, abs=1e-5)
    recalled = ids(CosineRetriever("dense", views), query, 1)[0]
    assert by_id[recalled] == pytest.approx(max(cosines))


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


@pytest.mark.parametrize(
    ("query", "mode", "found"),
    [
        ("cat", "or", {0, 2}),
        ("cat dog", "or", {0, 1, 2}),
        ("feline pets decisions", "or", set()),
        ("cat dog", "and_then_or", {2}),
        ("cat zebra", "and_then_or", {0, 2}),
        ("feline pets facts cat", "and_then_or", {0}),
    ],
)
def test_the_seed_wants_every_word_then_any_and_the_plain_search_reads_contents_alone(
    seed: FtsSeed, query: str, mode: SeedMode, found: set[int]
) -> None:
    assert set(positions(seed.search(query, 10, mode))) == found


def test_a_filter_acts_before_the_limit(seed: FtsSeed) -> None:
    best = positions(seed.search("the sat", 4))
    assert positions(seed.search("the sat", 1, allowed=lambda p: p != best[0])) == [best[1]]
    assert seed.search("the sat", 4, allowed=lambda p: False) == []


def views(rows: list[dict[str, Any]], scope: SearchScope = "all") -> CorpusViews:
    """Views without a snapshot: keyword arms look at the rows alone."""
    nothing = cast("Recaller", None)
    return CorpusViews(SetContext(Dataset("tiny", Path()), rows, nothing, scope))


def plain(rows: list[dict[str, Any]], scope: SearchScope = "all") -> KeywordRetriever:
    return KeywordRetriever("fts_plain", views(rows, scope), "or")


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
