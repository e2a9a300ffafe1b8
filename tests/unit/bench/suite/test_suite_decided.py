from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from bench.arms.ablations import list_ablations
from bench.suite.decided import FOLDS, SERVED, decide_crosswise, find_challengers, fold_of
from noctuary.evaluate.decide import CHALLENGERS, MIN_HALF
from noctuary.evaluate.labels import Query
from noctuary.evaluate.run import Run
from noctuary.recall.profile import RetrievalProfile

ARMS = {
    "noctuary": {"settings": RetrievalProfile().to_json()},
    **{a.name: {"settings": a.profile.to_json()} for a in list_ablations()},
}
N = 8 * MIN_HALF
QUERIES = [Query(f"q{n}", "text", "a", (f"right{n}",)) for n in range(N)]


def run_of(name: str, found: list[str]) -> Run:
    ids = tuple(q.query_id for q in QUERIES)
    nothing = (None,) * N
    return Run(name, 10, 10, ids, tuple((f,) for f in found), nothing, None, None, None, 0)


def right(n: int) -> str:
    return f"right{n}"


def test_every_challenger_is_an_arm_of_the_grid_or_the_shipped_profile() -> None:
    found = find_challengers(ARMS)
    assert found["rrf"] == "rrf"
    assert None not in found.values()
    same = CHALLENGERS.keys() - found.keys()
    assert same, "one step in each direction from the shipped profile, itself left out"
    assert SERVED not in found.values()


def test_a_challenger_that_is_better_everywhere_is_adopted_by_both_folds() -> None:
    runs = {
        SERVED: run_of(SERVED, ["wrong"] * N),
        "rrf": run_of("rrf", [right(n) for n in range(N)]),
    }
    decided = decide_crosswise(runs, QUERIES, ARMS)
    assert decided is not None
    assert [d.adopted for d in decided.decisions] == ["rrf", "rrf"]
    assert decided.run.rankings == runs["rrf"].rankings
    assert decided.run.name == "noctuary_decided"
    assert "cc_dense_0.3" in decided.without_arm


def test_a_fold_is_scored_by_what_the_other_fold_decided() -> None:
    """A challenger that is right in one fold only is adopted there, and used in the other."""
    fold = [fold_of(query.query_id) for query in QUERIES]
    runs = {
        SERVED: run_of(SERVED, ["wrong"] * N),
        "rrf": run_of("rrf", [right(n) if fold[n] == 0 else "wrong" for n in range(N)]),
    }
    decided = decide_crosswise(runs, QUERIES, ARMS)
    assert decided is not None
    # decisions[f] is taken on the queries outside fold f.
    assert [d.adopted for d in decided.decisions] == [None, "rrf"]
    assert set(decided.run.rankings) == {("wrong",)}, "what it gained was on the deciding queries"


def test_without_the_shipped_arm_or_a_second_fold_there_is_nothing_to_decide() -> None:
    runs = {SERVED: run_of(SERVED, ["wrong"] * N)}
    assert decide_crosswise({}, QUERIES, ARMS) is None
    one = QUERIES[:1]
    lonely = replace(runs[SERVED], query_ids=("q0",), rankings=(("wrong",),), top_scores=(None,))
    assert decide_crosswise({SERVED: lonely}, one, ARMS) is None


@given(st.lists(st.text(), unique=True))
def test_folds_depend_on_the_id_alone(names: list[str]) -> None:
    folds = {name: fold_of(name) for name in names}
    assert set(folds.values()) <= set(range(FOLDS))
    assert {name: fold_of(name) for name in reversed(names)} == folds
