from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from bench.suite.loading import LoadedSet
from bench.verify import __main__ as command
from bench.verify import measure
from bench.verify.changes import NOTHING, read_changes
from bench.verify.regression import read_regression
from tests.support.labelled_set import SmallSet, small_set

Verify = Callable[..., int]


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> SmallSet:
    return small_set(tmp_path_factory.mktemp("verify"))


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


def test_a_score_within_the_tolerance_is_okish_and_passes(
    verify: Verify, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    verify("--sets", "tiny", "--accept", "first measurement")
    file = tmp_path / "regressions" / "tiny.yaml"
    value = read_regression(file).values["scores.dense.ndcg@10"]
    assert isinstance(value, float)
    text = file.read_text(encoding="utf-8").replace(f"ndcg@10: {value}", f"ndcg@10: {value + 4e-4}")
    file.write_text(text, encoding="utf-8")
    capsys.readouterr()
    assert verify() == 0
    said = capsys.readouterr().out
    assert "tiny: OKish" in said
    assert "OKish  scores.dense.ndcg@10" in said


def test_a_set_that_is_not_there_fails_and_says_why(
    verify: Verify, capsys: pytest.CaptureFixture[str]
) -> None:
    assert verify("--sets", "absent", "--accept", "a reason") == 1
    assert "absent: FAIL" in capsys.readouterr().out
    assert verify("--sets", "tiny") == 1
    assert "no regression file at" in capsys.readouterr().out
