from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from bench.arms import Arm, SearchScope, SetContext, list_arms
from bench.arms.ablations import list_ablations
from bench.arms.catalogue import GRAPH_SEED_SETS
from bench.arms.corpus_views import CorpusViews
from bench.arms.recalled import GraphOnlyRetriever, RecallRetriever
from bench.datasets import Dataset
from noctuary.evaluate.labels import Query
from noctuary.evaluate.run import RunPlan, run_retriever
from noctuary.recall import inputs
from noctuary.recall.profile import RetrievalProfile
from tests.support.arms import WINGS, ask, build_context, ids, records
from tests.support.store import renumber

TEXTS = ("the cat and the ladder", "payment for the trip", "walnut saddle", "physician radiator")


@pytest.fixture(scope="module")
def context(tmp_path_factory: pytest.TempPathFactory) -> SetContext:
    return build_context(tmp_path_factory.mktemp("arms"), records(200))


def arms_of(context: SetContext) -> dict[str, Arm]:
    return {arm.name: arm for arm in list_arms(context, graph_seed=True)}


def test_the_asked_for_arms_are_all_there(context: SetContext) -> None:
    arms = list_arms(context, graph_seed=True)
    names = [arm.name for arm in arms]
    assert len(names) == len(set(names))
    by_group = {
        group: [arm.name for arm in arms if arm.group == group]
        for group in ("baseline", "noctuary", "ablation", "graph_seed")
    }
    assert by_group["baseline"] == [
        "fts_plain", "fts_seed", "fts_importance", "dense", "hybrid_seed",
    ]  # fmt: skip
    assert by_group["noctuary"] == ["noctuary"]
    assert by_group["graph_seed"] == [
        "hybrid_seed_graph_flawed",
        *(f"hybrid_seed_graph_w{w}" for w in ("0", "0.25", "0.35", "0.5", "1", "2", "3", "5")),
    ]
    assert {
        "lexical_only", "dense_only", "graph_only", "no_lexical", "no_dense", "no_graph",
        "no_sessions", "no_importance", "rrf", "rrf_no_graph", "rrf_dense_0.3", "rrf_dense_0.7",
        *(f"cc_dense_0.{tenths}" for tenths in (1, 2, 3, 4, 6, 7, 8, 9)),
        "graph_weight_0.25", "graph_weight_0.5", "graph_weight_2",
        "exact_bonus_0.05", "exact_bonus_0.1", "exact_bonus_0.2",
        "tier_64", "tier_256", "tier_full", "unrotated_64", "unrotated_256",
        "cascade", "cascade_rescored", "graph_ppr",
    } == set(by_group["ablation"])  # fmt: skip


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


def test_the_references_graph_runs_on_multi_hop_sets_and_a_reranker_where_one_is_given(
    context: SetContext,
) -> None:
    elsewhere = {arm.group for arm in list_arms(context)}
    assert elsewhere == {"baseline", "noctuary", "ablation"}
    for name in GRAPH_SEED_SETS:
        there = replace(context, dataset=Dataset(name, Path(name)))
        assert "graph_seed" in {arm.group for arm in list_arms(there)}
    assert "reranker" not in {arm.name for arm in list_arms(context)}
    reranked = list_arms(replace(context, reranker="nowhere"))  # loaded only when made
    assert "reranker" in {arm.name for arm in reranked}


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


def test_every_arm_goes_through_the_runner(context: SetContext) -> None:
    queries = [Query(str(n), text, "a", ("101",)) for n, text in enumerate(TEXTS)]
    for name, arm in arms_of(context).items():
        plan = RunPlan(k=3, depth=6, warm_up=1, timed=arm.timed)
        run = run_retriever(arm.make(), queries, plan, name=name)
        assert run.query_ids == ("0", "1", "2", "3")
        assert any(run.rankings)
        assert (run.latency_ms is not None) == arm.timed


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


def test_recall_is_asked_as_the_user_who_owns_most_and_baselines_as_nobody(
    tmp_path: Path,
) -> None:
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
