"""The order of the work, over real stores; the night itself is tested in tests/e2e."""

from __future__ import annotations

import gzip
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bench.arms.ablations import list_ablations
from bench.results import read_result, write_result
from bench.suite import __main__ as command
from bench.suite import evaluation, runner
from bench.suite.decided import SERVED, decide_crosswise, fold_of
from bench.suite.evaluation import EvaluatedSet, EvaluationOptions, evaluate_set
from bench.suite.kept import KeptRankings, cut, read_kept, write_kept
from bench.suite.keys import code_digest
from bench.suite.night import NightRecord
from bench.suite.plan import DEPTH, SuitePaths
from bench.suite.result import describe_result, differ, keep, rescore
from bench.suite.scoring import score_set
from noctuary.core.errors import StoreError
from noctuary.evaluate.decide import MIN_HALF
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


@pytest.fixture
def committed(
    tmp_path: Path, small: SmallSet, kept: KeptRankings, document: dict[str, Any]
) -> SuitePaths:
    paths = SuitePaths.below(tmp_path / "stores", tmp_path / "docs")
    write_kept(paths.kept("tiny"), kept)
    whole = {**document, **score_set(kept, small.loaded, document["arms"])}
    write_result(paths.result("tiny"), whole)
    return paths


def test_a_number_that_was_changed_by_hand_is_found_and_can_be_replaced(
    small: SmallSet, committed: SuitePaths
) -> None:
    path = committed.result("tiny")
    assert rescore(small.loaded, committed) == []
    before = path.read_bytes()
    changed = read_result(path)
    changed["scopes"]["all"]["reports"]["noctuary"]["overall"]["ndcg@10"]["mean"] += 0.001
    write_result(path, changed)
    (line,) = rescore(small.loaded, committed)
    assert "tiny: scopes.all.reports.noctuary.overall.ndcg@10.mean" in line
    assert rescore(small.loaded, committed, write=True) == [line]
    assert path.read_bytes() == before


def test_no_published_file_holds_a_text_of_the_set(small: SmallSet, committed: SuitePaths) -> None:
    kept = gzip.decompress(committed.kept("tiny").read_bytes()).decode()
    result = committed.result("tiny").read_text(encoding="utf-8")
    texts = [r["content"] for r in small.loaded.rows] + [q.text for q in small.loaded.queries]
    assert not [text for text in texts if text in kept or text in result]


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
    assert places.plot("tiny").read_text(encoding="utf-8").startswith("<svg ")
    assert places.plot("tiny").stat().st_size < 100_000
    seconds = read_result(places.results / command.SUITE_FILE)
    assert {"night", "evaluate", "statistics"} <= seconds["sets"]["tiny"].keys()
    assert "1 sets in" in capsys.readouterr().out
    assert suite("--rescore") == 0
