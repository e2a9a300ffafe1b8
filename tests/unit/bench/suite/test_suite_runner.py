"""The order of the work, over real stores; the night itself is tested in tests/e2e."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from bench.results import read_result
from bench.suite import __main__ as command
from bench.suite import runner
from bench.suite.night import NightRecord, build_store
from bench.suite.plan import SuitePaths
from noctuary.core.errors import StoreError
from tests.support.labelled_set import SmallSet, small_set

Suite = Callable[..., int]


@pytest.fixture
def places(tmp_path: Path) -> SuitePaths:
    return SuitePaths.below(tmp_path / "stores", tmp_path / "docs")


@pytest.fixture
def small(tmp_path: Path) -> SmallSet:
    return small_set(tmp_path)


@pytest.fixture
def suite(small: SmallSet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Suite:
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
    suite: Suite, small: SmallSet, places: SuitePaths, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = small.loaded.dataset.directory.with_name("broken")
    broken.mkdir()
    for name in ("corpus.jsonl.gz", "queries.jsonl"):
        (broken / name).write_bytes((small.loaded.dataset.directory / name).read_bytes())
    lines = (broken / "queries.jsonl").read_text(encoding="utf-8").splitlines()
    lines[2] = json.dumps({**json.loads(lines[2]), "relevant_ids": [999_999]})
    (broken / "queries.jsonl").write_text("\n".join(lines), encoding="utf-8")
    assert suite("--arms", "fts_*", "noctuary") == 1
    said = capsys.readouterr().err
    assert "broken cannot be loaded" in said
    assert "line 3" in said
    assert places.result("tiny").is_file()
    assert not places.result("broken").is_file()


def test_a_night_that_fails_is_a_fault_and_the_next_set_goes_on(
    suite: Suite, small: SmallSet, places: SuitePaths, capsys: pytest.CaptureFixture[str]
) -> None:
    first = small.loaded.dataset.directory.with_name("a-set")
    first.mkdir()
    for name in ("corpus.jsonl.gz", "queries.jsonl"):
        (first / name).write_bytes((small.loaded.dataset.directory / name).read_bytes())
    assert suite("--arms", "fts_*", "noctuary") == 1
    assert "FAULT a-set: the night on a-set failed: no store" in capsys.readouterr().err
    assert places.result("tiny").is_file()


def test_the_time_of_a_store_from_outside_is_that_of_its_own_records(
    suite: Suite, small: SmallSet, places: SuitePaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unchanged(directory: Path, store: Path, log: Path) -> NightRecord:
        return NightRecord("unchanged", 0.5, 0.1)

    costs = small.store / "work" / "costs.json"
    costs.write_text(json.dumps({"memories": {"asset": "memories", "wall_ms": 2_500.0}}))
    monkeypatch.setattr(runner, "build_store", unchanged)
    suite("--arms", "fts_*", "noctuary")
    assert read_result(places.result("tiny"))["measured"]["night"]["seconds"] == 2.5


def test_fresh_removes_only_what_a_night_has_made(
    suite: Suite, small: SmallSet, places: SuitePaths
) -> None:
    foreign = places.stores / "notes"
    foreign.mkdir()
    suite("--arms", "fts_*", "noctuary")
    assert suite("--fresh", "--arms", "fts_*", "noctuary") == 1, (
        "the store is gone, no night made it"
    )
    assert not small.store.exists()
    assert foreign.is_dir()
    assert not places.runs("tiny").exists()


@pytest.mark.slow
def test_a_real_night_publishes_a_store_that_can_be_asked(small: SmallSet, tmp_path: Path) -> None:
    directory, log = small.loaded.dataset.directory, tmp_path / "night.log"
    record = build_store(directory, tmp_path / "fresh", log)
    assert record.status == "published"
    assert record.seconds > 0
    assert build_store(directory, tmp_path / "fresh", log).status == "unchanged"
    (directory / "corpus.jsonl.gz").write_bytes(b"no gzip")
    with pytest.raises(StoreError, match="the night on tiny failed"):
        build_store(directory, tmp_path / "other", log)
