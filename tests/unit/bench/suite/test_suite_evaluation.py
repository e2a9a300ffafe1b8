from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

import pytest

from bench.suite import evaluation
from bench.suite.evaluation import EvaluatedSet, EvaluationOptions, evaluate_set, parts_of
from bench.suite.plan import ABSTAINING, DEPTH, HEADLINE
from noctuary.core.errors import ConfigError
from tests.support.labelled_set import SmallSet


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


def test_every_arm_has_a_run_of_the_depth_that_is_kept(
    small: SmallSet, evaluated: EvaluatedSet
) -> None:
    assert set(evaluated.runs["all"]) == set(evaluated.catalogue)
    assert set(evaluated.runs["wing"]) == set(HEADLINE)
    assert set(evaluated.runs["unanswerable"]) == set(ABSTAINING)
    for finished in evaluated.runs["all"].values():
        assert finished.run.query_ids == tuple(q.query_id for q in small.loaded.queries)
        assert max(map(len, finished.run.rankings)) <= DEPTH
        assert not finished.warnings


def test_within_a_wing_only_its_memories_are_found(
    small: SmallSet, evaluated: EvaluatedSet
) -> None:
    wing_of = {str(row["id"]): row["wing"] for row in small.loaded.rows}
    run = evaluated.runs["wing"]["noctuary"].run
    for query, ranking in zip(small.loaded.queries, run.rankings, strict=True):
        assert {wing_of[found] for found in ranking} <= {query.wing}


def test_a_stopped_suite_goes_on_with_the_arms_that_are_missing(
    small: SmallSet, runs_directory: Path
) -> None:
    first = said_by(small, runs_directory, "fts_*")
    assert len(first) == 3 + 1 + 1  # three arms, of which one in the wing, one on unanswerables
    (runs_directory / "all" / "fts_plain.json").write_text("{ torn", encoding="utf-8")
    again = said_by(small, runs_directory, "fts_*")
    assert [line.split(":")[0].split()[-1] for line in again] == ["fts_plain"]
    assert said_by(small, runs_directory, "fts_*") == []


def test_an_arm_that_is_not_asked_for_is_kept_where_its_run_is_current(
    small: SmallSet, runs_directory: Path
) -> None:
    said_by(small, runs_directory, "noctuary")
    options = EvaluationOptions(("dense",), log=lambda text: None)
    found = evaluate_set(small.loaded, small.store, runs_directory, options)
    assert set(found.runs["all"]) == {"noctuary", "dense"}


def test_a_run_is_stale_when_the_code_that_ranks_has_changed(
    small: SmallSet, runs_directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said_by(small, runs_directory, "fts_plain")
    monkeypatch.setattr(evaluation, "code_digest", another_digest)
    assert len(said_by(small, runs_directory, "fts_plain")) == 1


def test_a_run_is_stale_when_the_queries_have_changed(
    small: SmallSet, runs_directory: Path
) -> None:
    said_by(small, runs_directory, "fts_plain")
    path = small.loaded.dataset.queries
    before = path.read_bytes()
    try:
        path.write_bytes(before + b"\n")
        assert len(said_by(small, runs_directory, "fts_plain")) == 1
    finally:
        path.write_bytes(before)


def test_a_run_file_holds_no_text_of_a_query_or_memory(
    small: SmallSet, runs_directory: Path
) -> None:
    said_by(small, runs_directory, "noctuary")
    text = (runs_directory / "all" / "noctuary.json").read_text(encoding="utf-8")
    assert json.loads(text)["run"]["query_ids"][0] == "q0"
    assert not [q.text for q in small.loaded.queries if q.text in text]


def test_globs_that_name_no_arm_are_refused_with_the_arms_that_there_are(
    small: SmallSet, runs_directory: Path
) -> None:
    with pytest.raises(ConfigError, match=r"nonsense\* names no arm of tiny; there are fts_plain"):
        said_by(small, runs_directory, "nonsense*")
