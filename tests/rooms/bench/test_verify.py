from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from bench.suite.loading import LoadedSet
from bench.verify import __main__ as command
from bench.verify import measure
from bench.verify.changes import (
    CHANGES,
    HEADER,
    NOTHING,
    Change,
    append_changes,
    as_text,
    newest,
    read_changes,
)
from bench.verify.regression import (
    REGRESSIONS,
    Regression,
    read_regression,
    regression_path,
    write_regression,
)
from bench.verify.verdict import Verdict, judge, judge_number, worst
from tests.support.labelled_set import SmallSet


def change(number: str, old: str, new: str, dataset: str = "tiny") -> Change:
    return Change("2026-11-21", dataset, number, old, new, "0123456789ab+", "a reason")


def test_entries_are_appended_and_what_stands_there_is_kept(tmp_path: Path) -> None:
    log = tmp_path / "changes.md"
    assert read_changes(log) == []
    first, second = change("index.memories", NOTHING, "60"), change("index.memories", "60", "61")
    append_changes(log, [first])
    before = log.read_text(encoding="utf-8")
    assert before.startswith(HEADER)
    append_changes(log, [second, change("index.memories", NOTHING, "7", "other")])
    assert log.read_text(encoding="utf-8").startswith(before)
    assert read_changes(log)[:2] == [first, second]
    assert newest(read_changes(log)) == {
        ("tiny", "index.memories"): "61",
        ("other", "index.memories"): "7",
    }


def test_every_expected_number_has_its_newest_entry_in_the_log() -> None:
    """No number of a regression file changes without a dated reason."""
    said = newest(read_changes(CHANGES))
    expected = {
        (found.dataset, name): as_text(value)
        for path in sorted(REGRESSIONS.glob("*.yaml"))
        for found in [read_regression(path)]
        for name, value in found.values.items()
    }
    gone = {key: value for key, value in said.items() if value == NOTHING}
    assert expected, "there are regression files"
    assert {**expected, **gone} == said


VALUES = {
    "corpus.digest": "00e1",
    "index.memories": 60,
    "index.encoder_digest": None,
    "scores.noctuary.recall@10": 0.5,
    "scores.noctuary.mrr@10": 0.25,
}


def test_a_regression_file_reads_back_what_was_written(tmp_path: Path) -> None:
    path = regression_path(tmp_path, "tiny")
    digests = {"corpus.digest": "1234567890", "scores.a.b": "12e4"}  # not to become numbers
    written = Regression("tiny", {**VALUES, **digests}, tolerance=0.001)
    write_regression(path, written)
    assert read_regression(path) == written
    text = path.read_text(encoding="utf-8")
    assert "command: make bench-verify SETS=tiny" in text
    assert "    recall@10: 0.5" in text


@pytest.mark.parametrize(
    ("name", "expected", "found", "verdict"),
    [
        ("index.memories", 60, 60, Verdict.OK),
        ("index.memories", 60, 61, Verdict.FAIL),
        ("index.memories", 60, None, Verdict.FAIL),
        ("index.encoder_digest", None, None, Verdict.OK),
        ("corpus.digest", "a", "b", Verdict.FAIL),
        ("scores.noctuary.recall@10", 0.5, 0.5, Verdict.OK),
        ("scores.noctuary.recall@10", 0.5, 0.5004, Verdict.OKISH),
        ("scores.noctuary.recall@10", 0.5, 0.4996, Verdict.OKISH),
        ("scores.noctuary.recall@10", 0.5, 0.5006, Verdict.FAIL),
        ("index.share", 0.5, 0.5004, Verdict.FAIL),
        ("scores.noctuary.recall@10", None, 0.5, Verdict.FAIL),
    ],
)
def test_only_scores_have_a_tolerance(
    name: str, expected: float | None, found: float | None, verdict: Verdict
) -> None:
    assert judge_number(name, expected, found, tolerance=0.0005) is verdict


def test_a_number_that_one_side_lacks_fails() -> None:
    expected = Regression("tiny", {"index.memories": 60, "index.terms": 5})
    found = Regression("tiny", {"index.memories": 60, "index.edges": 9})
    verdicts = {one.name: one.verdict for one in judge(expected, found)}
    assert verdicts == {
        "index.memories": Verdict.OK,
        "index.terms": Verdict.FAIL,
        "index.edges": Verdict.FAIL,
    }
    assert worst(judge(expected, found)) is Verdict.FAIL
    assert worst([]) is Verdict.OK


Verify = Callable[..., int]


@pytest.fixture
def verify(small: SmallSet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Verify:
    """The command over a set whose store is built already; files go to `tmp_path`."""

    def built_already(loaded: LoadedSet, store: Path, log: Path) -> None:
        assert (loaded.name, store) == ("tiny", small.store)

    monkeypatch.setenv("NOCTUARY_SHARED", str(small.loaded.dataset.directory.parents[1]))
    monkeypatch.setattr(measure, "index", built_already)
    places = [
        "--stores", str(small.store.parent),
        "--regressions", str(tmp_path / "regressions"),
        "--log", str(tmp_path / "changes.md"),
    ]  # fmt: skip
    return lambda *arguments: command.main([*places, *arguments])


def test_a_set_is_accepted_once_and_is_ok_from_then_on(verify: Verify, tmp_path: Path) -> None:
    assert verify("--sets", "tiny", "--accept", "first measurement") == 0
    found = read_regression(tmp_path / "regressions" / "tiny.yaml")
    assert found.values["index.memories"] == 60
    assert found.values["index.vector_dimension"] is not None
    assert {name.split(".")[1] for name in found.values if name.startswith("scores.")} == {
        "noctuary", "lexical_only", "dense", "fts_seed", "hybrid_seed",
    }  # fmt: skip
    changes = read_changes(tmp_path / "changes.md")
    assert {change.number for change in changes} == set(found.values)
    assert {change.old for change in changes} == {NOTHING}
    assert verify() == 0


def test_a_number_that_moved_fails_and_is_accepted_with_one_entry(
    verify: Verify, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    verify("--sets", "tiny", "--accept", "first measurement")
    file = tmp_path / "regressions" / "tiny.yaml"
    whole = file.read_text(encoding="utf-8")
    file.write_text(whole.replace("memories: 60", "memories: 59"), encoding="utf-8")
    capsys.readouterr()
    assert verify("--json") == 1
    (checked,) = json.loads(capsys.readouterr().out)
    wrong = [one for one in checked["numbers"] if one["verdict"] != "OK"]
    assert wrong == [{"name": "index.memories", "expected": 59, "found": 60, "verdict": "FAIL"}]
    before = len(read_changes(tmp_path / "changes.md"))
    assert verify("--accept", "the export reads one row more") == 0
    (entry,) = read_changes(tmp_path / "changes.md")[before:]
    assert (entry.number, entry.old, entry.new) == ("index.memories", "59", "60")
    assert entry.reason == "the export reads one row more"
    assert file.read_text(encoding="utf-8") == whole


def test_a_set_that_is_not_there_fails_and_says_why(
    verify: Verify, capsys: pytest.CaptureFixture[str]
) -> None:
    assert verify("--sets", "absent", "--accept", "a reason") == 1
    assert "absent: FAIL" in capsys.readouterr().out
    assert verify("--sets", "tiny") == 1
    assert "no regression file at" in capsys.readouterr().out
