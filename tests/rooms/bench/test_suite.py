"""The order of the work, over real stores; the night itself is tested in tests/e2e."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.arms.ablations import list_ablations
from bench.results import dump, read_result, write_result
from bench.suite import __main__ as command
from bench.suite import evaluation, runner
from bench.suite.decided import FOLDS, SERVED, decide_crosswise, find_challengers, fold_of
from bench.suite.evaluation import EvaluatedSet, EvaluationOptions, evaluate_set, parts_of
from bench.suite.kept import KeptRankings, cut, read_kept, write_kept
from bench.suite.keys import code_digest, run_key
from bench.suite.night import NightRecord, build_store
from bench.suite.plan import DEPTH, HEADLINE, SuitePaths
from bench.suite.result import describe_result, differ, keep, rescore
from bench.suite.scoring import score_set
from noctuary.core.errors import StoreError
from noctuary.evaluate.decide import CHALLENGERS, MIN_HALF
from noctuary.evaluate.labels import Query
from noctuary.evaluate.metrics import recall_at_k
from noctuary.evaluate.run import Run
from noctuary.evaluate.statistics import Resampling
from noctuary.recall.profile import RetrievalProfile
from tests.support.labelled_set import SmallSet, small_set


def said_by(small: SmallSet, runs: Path, *globs: str) -> list[str]:
    said: list[str] = []
    evaluate_set(small.loaded, small.store, runs, EvaluationOptions(globs, log=said.append))
    return said


def another_digest(parts: Iterable[str]) -> str:
    return f"another than of {sorted(parts)}"


def test_a_set_is_asked_whole_within_wings_and_on_what_nothing_answers(small: SmallSet) -> None:
    parts = {part.name: part for part in parts_of(small.loaded)}
    assert list(parts) == ["all", "wing", "unanswerable"]
    assert parts["all"].arms is None
    assert parts["wing"].arms == HEADLINE
    assert (parts["wing"].search, parts["unanswerable"].search) == ("wing", "all")
    assert [q.query_id for q in parts["unanswerable"].queries] == ["u0", "u1", "u2"]


def test_within_a_wing_only_its_memories_are_found(
    small: SmallSet, evaluated: EvaluatedSet
) -> None:
    wing_of = {str(row["id"]): row["wing"] for row in small.loaded.rows}
    run = evaluated.runs["wing"]["noctuary"].run
    for query, ranking in zip(small.loaded.queries, run.rankings, strict=True):
        assert {wing_of[found] for found in ranking} <= {query.wing}


def test_a_stopped_suite_goes_on_with_the_arms_that_are_missing(
    small: SmallSet, tmp_path: Path
) -> None:
    first = said_by(small, tmp_path, "fts_*")
    assert len(first) == 3 + 1 + 1  # three arms, of which one in the wing, one on unanswerables
    (tmp_path / "all" / "fts_plain.json").write_text("{ torn", encoding="utf-8")
    again = said_by(small, tmp_path, "fts_*")
    assert [line.split(":")[0].split()[-1] for line in again] == ["fts_plain"]
    assert said_by(small, tmp_path, "fts_*") == []


def test_a_run_is_stale_when_the_code_that_ranks_has_changed(
    small: SmallSet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said_by(small, tmp_path, "fts_plain")
    monkeypatch.setattr(evaluation, "code_digest", another_digest)
    assert len(said_by(small, tmp_path, "fts_plain")) == 1


def test_a_run_is_stale_when_the_queries_have_changed(small: SmallSet, tmp_path: Path) -> None:
    said_by(small, tmp_path, "fts_plain")
    path = small.loaded.dataset.queries
    before = path.read_bytes()
    try:
        path.write_bytes(before + b"\n")
        assert len(said_by(small, tmp_path, "fts_plain")) == 1
    finally:
        path.write_bytes(before)


def test_a_run_file_holds_no_text_of_a_query_or_memory(small: SmallSet, tmp_path: Path) -> None:
    said_by(small, tmp_path, "noctuary")
    text = (tmp_path / "all" / "noctuary.json").read_text(encoding="utf-8")
    assert json.loads(text)["run"]["query_ids"][0] == "q0"
    assert not [q.text for q in small.loaded.queries if q.text in text]


def run_of(name: str, rankings: list[tuple[str, ...]], score: float | None = None) -> Run:
    names = tuple(f"q{row}" for row in range(len(rankings)))
    scores = tuple(score for _ in rankings)
    return Run(name, DEPTH, DEPTH, names, tuple(rankings), scores, None, None, None, 0)


def test_what_is_kept_reads_back_the_same_and_equal_runs_give_equal_bytes(
    small: SmallSet, evaluated: EvaluatedSet, tmp_path: Path
) -> None:
    kept = keep(small.loaded, evaluated)
    write_kept(tmp_path / "a.json.gz", kept)
    write_kept(tmp_path / "b.json.gz", kept)
    assert read_kept(tmp_path / "a.json.gz") == kept
    assert (tmp_path / "a.json.gz").read_bytes() == (tmp_path / "b.json.gz").read_bytes()


def test_what_is_kept_holds_no_text_of_the_set(
    small: SmallSet, evaluated: EvaluatedSet, tmp_path: Path
) -> None:
    write_kept(tmp_path / "a.json.gz", keep(small.loaded, evaluated))
    text = gzip.decompress((tmp_path / "a.json.gz").read_bytes()).decode()
    words = {word for row in small.loaded.rows for word in row["content"].split() if len(word) > 5}
    assert words
    assert not {word for word in words if word in text}


def test_a_run_is_cut_to_the_kept_depth_and_only_judged_scores_are_kept() -> None:
    long = tuple(str(n) for n in range(DEPTH + 5))
    assert cut(run_of("noctuary", [long], 0.12345678)).rankings == (long[:DEPTH],)
    assert cut(run_of("noctuary", [long], 0.12345678)).top_scores == (0.123457,)
    assert cut(run_of("rrf", [long], 0.5)).top_scores == (None,)


FEW = Resampling(draws=200)


@pytest.fixture(scope="module")
def kept(small: SmallSet, evaluated: EvaluatedSet) -> KeptRankings:
    return keep(small.loaded, evaluated)


@pytest.fixture(scope="module")
def document(small: SmallSet, evaluated: EvaluatedSet, kept: KeptRankings) -> dict[str, Any]:
    night = {"status": "published", "seconds": 1.5, "load_average_1m": 0.1}
    found = describe_result(small.loaded, small.store, evaluated, night)
    return found | score_set(kept, small.loaded, found["arms"], FEW)


def test_the_mean_is_that_of_the_kept_rankings(
    small: SmallSet, kept: KeptRankings, document: dict[str, Any]
) -> None:
    run = kept.scopes["all"]["hybrid_seed"]
    by_hand = [
        recall_at_k(ranking, query.relevant_ids, 10)
        for ranking, query in zip(run.rankings, small.loaded.queries, strict=True)
    ]
    report = document["scopes"]["all"]["reports"]["hybrid_seed"]
    assert report["overall"]["recall@10"]["mean"] == pytest.approx(np.mean(by_hand), abs=1e-6)


def test_arms_of_the_pool_have_no_holes_and_the_pool_is_named(document: dict[str, Any]) -> None:
    holes = document["holes"]
    baselines = [n for n, arm in document["arms"].items() if arm["group"] == "baseline"]
    assert holes["pool_arms"] == baselines
    assert all(holes["arms"][name]["mean"] == 0.0 for name in baselines)
    assert holes["arms"]["no_dense"]["mean"] > 0.0
    assert holes["arms"]["noctuary"]["low"] is not None


def test_abstention_is_judged_where_a_set_has_unanswerable_questions(
    document: dict[str, Any],
) -> None:
    for judged in document["abstention"].values():
        assert 0.0 <= judged["auroc"] <= 1.0
        assert (judged["n_answerable"], judged["n_unanswerable"]) == (16, 3)
    assert "noctuary" in document["abstention"]


def test_a_result_file_holds_no_text_of_the_set(small: SmallSet, document: dict[str, Any]) -> None:
    text = dump(document)
    assert not [row["content"] for row in small.loaded.rows if row["content"] in text]
    assert not [query.text for query in small.loaded.queries if query.text in text]


@pytest.fixture
def committed(
    tmp_path: Path, small: SmallSet, kept: KeptRankings, document: dict[str, Any]
) -> SuitePaths:
    paths = SuitePaths.below(tmp_path / "stores", tmp_path / "docs")
    write_kept(paths.kept("tiny"), kept)
    whole = {**document, **score_set(kept, small.loaded, document["arms"])}
    write_result(paths.result("tiny"), whole)
    return paths


def test_numbers_computed_again_from_the_kept_rankings_agree(
    small: SmallSet, committed: SuitePaths
) -> None:
    assert rescore(small.loaded, committed) == []


def test_a_number_that_was_changed_by_hand_is_found_and_can_be_replaced(
    small: SmallSet, committed: SuitePaths
) -> None:
    path = committed.result("tiny")
    before = path.read_bytes()
    changed = read_result(path)
    changed["scopes"]["all"]["reports"]["noctuary"]["overall"]["ndcg@10"]["mean"] += 0.001
    write_result(path, changed)
    (line,) = rescore(small.loaded, committed)
    assert "tiny: scopes.all.reports.noctuary.overall.ndcg@10.mean" in line
    assert rescore(small.loaded, committed, write=True) == [line]
    assert path.read_bytes() == before


def test_kept_rankings_of_other_queries_are_not_scored(
    small: SmallSet, committed: SuitePaths, kept: KeptRankings
) -> None:
    write_kept(committed.kept("tiny"), KeptRankings("tiny", "another", kept.scopes))
    (line,) = rescore(small.loaded, committed)
    assert "not those that the kept rankings answered" in line


def test_differences_are_named_by_their_place() -> None:
    old = {"a": {"b": [1.0, 2.0]}, "c": None, "d": [1]}
    new = {"a": {"b": [1.0, 2.5]}, "c": "x", "d": [1, 2], "e": 0}
    assert [line.split(" ")[0] for line in differ(old, new)] == ["a.b[1]", "c", "d", "e"]
    assert list(differ({"x": 0.5}, {"x": 0.5 + 1e-9})) == []
    assert len(list(differ({"x": 0.5}, {"x": 0.5 + 1e-5}))) == 1


ARMS = {
    "noctuary": {"settings": RetrievalProfile().to_json()},
    **{a.name: {"settings": a.profile.to_json()} for a in list_ablations()},
}
N = 8 * MIN_HALF
QUERIES = [Query(f"q{n}", "text", "a", (f"right{n}",)) for n in range(N)]


def run_that_found(name: str, found: list[str]) -> Run:
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
        SERVED: run_that_found(SERVED, ["wrong"] * N),
        "rrf": run_that_found("rrf", [right(n) for n in range(N)]),
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
        SERVED: run_that_found(SERVED, ["wrong"] * N),
        "rrf": run_that_found("rrf", [right(n) if fold[n] == 0 else "wrong" for n in range(N)]),
    }
    decided = decide_crosswise(runs, QUERIES, ARMS)
    assert decided is not None
    # decisions[f] is taken on the queries outside fold f.
    assert [d.adopted for d in decided.decisions] == [None, "rrf"]
    assert set(decided.run.rankings) == {("wrong",)}, "what it gained was on the deciding queries"


@given(st.lists(st.text(), unique=True))
def test_folds_depend_on_the_id_alone(names: list[str]) -> None:
    folds = {name: fold_of(name) for name in names}
    assert set(folds.values()) <= set(range(FOLDS))
    assert {name: fold_of(name) for name in reversed(names)} == folds


def test_the_code_digest_sees_a_changed_a_renamed_and_a_new_file(tmp_path: Path) -> None:
    (tmp_path / "part").mkdir()
    file = tmp_path / "part" / "a.py"
    file.write_text("x = 1\n", encoding="utf-8")
    seen = [code_digest(["part", "gone"], tmp_path)]
    file.write_text("x = 2\n", encoding="utf-8")
    seen.append(code_digest(["part"], tmp_path))
    file.rename(tmp_path / "part" / "b.py")
    seen.append(code_digest(["part"], tmp_path))
    (tmp_path / "part" / "c.py").write_text("", encoding="utf-8")
    seen.append(code_digest(["part"], tmp_path))
    assert len(set(seen)) == 4
    (tmp_path / "part" / "notes.txt").write_text("no code", encoding="utf-8")
    assert code_digest(["part"], tmp_path) == seen[-1]
    assert code_digest(["part/b.py"], tmp_path) != seen[-1]


@pytest.mark.parametrize("changed", [{"arm": "b"}, {"depth": 11}, {"settings": {"k": 2}}])
def test_a_key_depends_on_every_part(changed: dict[str, object]) -> None:
    parts: dict[str, object] = {"arm": "a", "depth": 10, "settings": {"k": 1}}
    assert run_key(**parts) == run_key(**dict(reversed(parts.items())))
    assert run_key(**parts) != run_key(**{**parts, **changed})


Suite = Callable[..., int]


@pytest.fixture
def places(tmp_path: Path) -> SuitePaths:
    return SuitePaths.below(tmp_path / "stores", tmp_path / "docs")


@pytest.fixture
def ours(tmp_path: Path) -> SmallSet:
    return small_set(tmp_path)


@pytest.fixture
def suite(ours: SmallSet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Suite:
    """The command, over stores that are built already."""

    def published(directory: Path, store: Path, log: Path) -> NightRecord:
        if not store.is_dir():
            raise StoreError(f"the night on {directory.name} failed: no store")
        return NightRecord("published", 12.5, 0.1)

    monkeypatch.setenv("NOCTUARY_SHARED", str(tmp_path))
    monkeypatch.setattr(runner, "build_store", published)
    options = ["--stores", str(tmp_path / "stores"), "--out", str(tmp_path / "docs")]
    return lambda *arguments: command.main([*options, *arguments])


def test_a_set_ends_as_numbers_rankings_and_a_plot(
    suite: Suite, places: SuitePaths, capsys: pytest.CaptureFixture[str]
) -> None:
    assert suite() == 0
    document = read_result(places.result("tiny"))
    assert document["measured"]["night"]["seconds"] == 12.5
    assert document["manifest"]["n_queries"] == 16
    assert {"commit", "libraries", "seed", "corpus_digest", "encoder"} <= document[
        "manifest"
    ].keys()
    assert places.kept("tiny").is_file()
    assert places.plot("tiny").read_bytes().startswith(b"\x89PNG")
    assert places.plot("tiny").stat().st_size < 100_000
    seconds = read_result(places.results / command.SUITE_FILE)
    assert {"night", "evaluate", "statistics"} <= seconds["sets"]["tiny"].keys()
    assert "1 sets in" in capsys.readouterr().out
    assert suite("--rescore") == 0


def test_a_finished_set_is_left_as_it_is(
    suite: Suite, places: SuitePaths, capsys: pytest.CaptureFixture[str]
) -> None:
    suite("--arms", "fts_*", "noctuary")
    before = places.result("tiny").read_bytes()
    capsys.readouterr()
    assert suite("--arms", "fts_*", "noctuary") == 0
    assert "tiny: nothing to do" in capsys.readouterr().out
    assert places.result("tiny").read_bytes() == before


def test_a_set_that_cannot_be_loaded_is_reported_with_its_line_and_the_others_go_on(
    suite: Suite, ours: SmallSet, places: SuitePaths, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = ours.loaded.dataset.directory.with_name("broken")
    broken.mkdir()
    for name in ("corpus.jsonl.gz", "queries.jsonl"):
        (broken / name).write_bytes((ours.loaded.dataset.directory / name).read_bytes())
    lines = (broken / "queries.jsonl").read_text(encoding="utf-8").splitlines()
    lines[2] = json.dumps({**json.loads(lines[2]), "relevant_ids": [999_999]})
    (broken / "queries.jsonl").write_text("\n".join(lines), encoding="utf-8")
    assert suite("--arms", "fts_*", "noctuary") == 1
    said = capsys.readouterr().err
    assert "broken cannot be loaded" in said
    assert "line 3" in said
    assert places.result("tiny").is_file()
    assert not places.result("broken").is_file()


def test_fresh_removes_only_what_a_night_has_made(
    suite: Suite, ours: SmallSet, places: SuitePaths
) -> None:
    foreign = places.stores / "notes"
    foreign.mkdir()
    suite("--arms", "fts_*", "noctuary")
    assert suite("--fresh", "--arms", "fts_*", "noctuary") == 1, (
        "the store is gone, no night made it"
    )
    assert not ours.store.exists()
    assert foreign.is_dir()
    assert not places.runs("tiny").exists()


@pytest.mark.slow
def test_a_real_night_publishes_a_store_that_can_be_asked(ours: SmallSet, tmp_path: Path) -> None:
    directory, log = ours.loaded.dataset.directory, tmp_path / "night.log"
    record = build_store(directory, tmp_path / "fresh", log)
    assert record.status == "published"
    assert record.seconds > 0
    assert build_store(directory, tmp_path / "fresh", log).status == "unchanged"
    (directory / "corpus.jsonl.gz").write_bytes(b"no gzip")
    with pytest.raises(StoreError, match="the night on tiny failed"):
        build_store(directory, tmp_path / "other", log)
