from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from noctuary.evaluate.run import read_run
from tests.support.store import Store

Run = Callable[..., Result]
RunJson = Callable[..., Any]

SEARCH = '''
class Shared:
    """Ranks by shared words; ids by name where nothing is shared."""

    name = "shared_words"

    def build_index(self, corpus):
        self.texts = {row["id"]: set(row["content"].lower().split()) for row in corpus}

    def retrieve(self, query, k):
        words = set(query.lower().split())
        return sorted(self.texts, key=lambda i: (-len(words & self.texts[i]), i))[:k]

    @property
    def index_size_bytes(self):
        return 2_500_000


def always_one(query, k):
    return [101]


class Broken:
    def retrieve(self, query, k):
        raise KeyError("lost")


class NoList:
    def retrieve(self, query, k):
        return None


class Unmakeable:
    def __init__(self):
        raise RuntimeError("no model")
'''


@pytest.fixture
def house_set(tmp_path: Path) -> Path:
    """Queries over the household store of the fixtures; ids from 101."""
    folder = tmp_path / "household"
    folder.mkdir()
    corpus = [{"id": i, "content": f"Text {i}"} for i in range(101, 115)]
    corpus[0]["content"] = "the spare key"
    queries = [
        {"query_id": "q1", "text": "spare key", "stratum": "exact", "relevant_ids": [101]},
        {
            "query_id": "q2", "text": "Atlas migration", "stratum": "work", "relevant_ids": [103],
            "wing": "work",
        },
        {"query_id": "q3", "text": "feline", "stratum": "exact", "relevant_ids": [102]},
    ]  # fmt: skip
    adversarial = [
        {"query_id": "a1", "text": "zeppelin", "relevant_ids": []},
        {"query_id": "a2", "text": "submarine", "relevant_ids": []},
    ]
    for name, rows in (("corpus", corpus), ("queries", queries), ("adversarial", adversarial)):
        text = "".join(json.dumps(row) + "\n" for row in rows)
        (folder / f"{name}.jsonl").write_text(text)
    return folder


@pytest.fixture
def searches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A module in the current directory, importable for this test alone."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tiny_searches.py").write_text(SEARCH)
    yield
    sys.modules.pop("tiny_searches", None)


def test_the_serving_snapshot_is_asked_and_scored_with_intervals(
    run: Run, dense_store: Store, house_set: Path
) -> None:
    result = run("evaluate", "run", str(house_set))
    assert result.exit_code == 0
    assert "noctuary on 3 queries" in result.stdout
    header, _, recall = (line.split() for line in result.stdout.splitlines()[2:5])
    assert header == ["metric", "mean", "95", "%", "interval", "macro"]
    assert recall == ["recall@10", "1.000", "[1.000,", "1.000]", "1.000"]
    assert "exact (2 queries)" in result.stdout
    assert "work (1 queries)" in result.stdout
    assert "latency at k=10: p50 " in result.stdout
    assert "index size " in result.stdout
    assert "abstention: AUROC of the top score " in result.stdout
    assert "3 answerable and 2 unanswerable queries" in result.stdout


def test_the_run_is_kept_with_its_manifest_and_without_a_path(
    run: Run, run_json: RunJson, dense_store: Store, house_set: Path, tmp_path: Path
) -> None:
    out = tmp_path / "ours.json.gz"
    value = run_json(
        "evaluate", "run", str(house_set), "--out", str(out), "--name", "ours", "-k", "2",
        "--metric", "recall@1", "--metric", "ndcg@100",
    )  # fmt: skip
    kept, manifest = read_run(out)
    assert (kept.name, kept.k, kept.depth) == ("ours", 2, 100)
    assert kept.query_ids == ("q1", "q2", "q3", "a1", "a2")
    assert kept.latency_ms is not None
    assert kept.index_bytes == value["index_bytes"]
    assert list(value["report"]["overall"]) == ["recall@1", "ndcg@100"]
    assert value["report"]["name"] == "ours"
    assert value["manifest"] == manifest
    assert manifest["set"] == "household"
    assert manifest["encoder_digest"] is not None
    assert manifest["asked"]["profile"]["fusion"] == "cc"
    assert set(manifest["query_digests"]) == {"queries.jsonl", "adversarial.jsonl"}
    assert str(tmp_path) not in json.dumps(manifest)


def test_labels_and_moments_reach_the_snapshot_and_the_wing_only_when_asked(
    run_json: RunJson, dense_store: Store, house_set: Path, tmp_path: Path
) -> None:
    everywhere, inside = tmp_path / "everywhere.json", tmp_path / "inside.json"
    run_json("evaluate", "run", str(house_set), "--out", str(everywhere))
    run_json("evaluate", "run", str(house_set), "--out", str(inside), "--in-wing")
    wide, narrow = read_run(everywhere)[0].rankings[1], read_run(inside)[0].rankings[1]
    assert set(narrow) < set(wide)
    queries = house_set / "queries.jsonl"
    row = json.loads(queries.read_text().splitlines()[0])
    queries.write_text(json.dumps({**row, "as_of": "2025-01-01"}) + "\n")
    before = tmp_path / "before.json"
    value = run_json("evaluate", "run", str(house_set), "--out", str(before))
    assert "101" not in read_run(before)[0].rankings[0]
    assert value["report"]["overall"]["recall@10"]["mean"] == 0.0


def test_only_the_first_queries(run_json: RunJson, dense_store: Store, house_set: Path) -> None:
    value = run_json("evaluate", "run", str(house_set), "--limit", "1")
    assert value["report"]["n"] == 1
    assert value["report"]["overall"]["recall@10"]["low"] is None
    assert value["abstention"]["n_unanswerable"] == 1


def test_a_snapshot_of_another_source_is_refused(
    run: Run, dense_store: Store, house_set: Path
) -> None:
    for name in ("corpus", "queries"):
        path = house_set / f"{name}.jsonl"
        path.write_text(path.read_text().replace("10", "90"))
    result = run("evaluate", "run", str(house_set))
    assert result.exit_code == 1
    assert "holds none of the 3 labelled memories of household" in result.stderr
    assert "noctuary nightly " in result.stderr


def test_labels_that_the_snapshot_lacks_are_said(
    run: Run, dense_store: Store, house_set: Path
) -> None:
    for name in ("corpus", "queries"):
        path = house_set / f"{name}.jsonl"
        path.write_text(path.read_text().replace("103", "903"))
    result = run("evaluate", "run", str(house_set))
    assert result.exit_code == 0
    assert "! labels_not_in_snapshot: " in result.stderr
    assert "lacks 1 of 3 labelled memories" in result.stderr


def test_without_a_snapshot_or_a_set_it_says_what_to_run(
    run: Run, home: Path, house_set: Path, tmp_path: Path
) -> None:
    result = run("evaluate", "run", str(house_set))
    assert result.exit_code == 1
    assert "noctuary nightly" in result.stderr
    assert "is not a folder" in run("evaluate", "run", str(tmp_path / "gone")).stderr


def test_the_store_that_was_built_from_the_set_comes_first(
    run: Run, dense_store: Store, house_set: Path
) -> None:
    from noctuary.core.store import find_home, store_for_source

    other = store_for_source(find_home(), house_set)
    dense_store.root.rename(other)
    (find_home() / "newer").mkdir()
    (find_home() / "newer" / "CURRENT").write_text("{}")
    result = run("evaluate", "run", str(house_set))
    assert result.exit_code == 0
    assert "store_guessed" not in result.stderr


@pytest.mark.usefixtures("searches", "home")
def test_a_retriever_of_the_current_directory_is_built_asked_and_scored(
    run: Run, house_set: Path, tmp_path: Path
) -> None:
    out = tmp_path / "words.json"
    spec = "tiny_searches:Shared"
    result = run("evaluate", "run", str(house_set), "--retriever", spec, "--out", str(out))
    assert result.exit_code == 0
    assert "shared_words on 3 queries" in result.stdout
    assert "index built in " in result.stdout
    assert "index size 2.50 MB" in result.stdout
    assert "gives no scores" in result.stdout
    kept, manifest = read_run(out)
    assert kept.rankings[0][0] == "101"
    assert manifest["asked"] == {"retriever": "tiny_searches:Shared"}


@pytest.mark.usefixtures("searches", "home")
def test_a_function_will_do(run_json: RunJson, house_set: Path) -> None:
    value = run_json("evaluate", "run", str(house_set), "--retriever", "tiny_searches:always_one")
    assert value["report"]["name"] == "always_one"
    assert value["report"]["overall"]["recall@10"]["mean"] == pytest.approx(1 / 3, abs=1e-6)
    assert value["report"]["macro"]["recall@10"] == pytest.approx(1 / 4)


@pytest.mark.usefixtures("searches", "home")
@pytest.mark.parametrize(
    ("spec", "code", "says"),
    [
        ("tiny_searches:Broken", 1, "! caused by KeyError: 'lost'"),
        ("tiny_searches:Broken", 1, "failed on query 'q1'"),
        ("tiny_searches:NoList", 1, "returned None; expected a list of ids"),
        ("tiny_searches:SEARCHES", 2, "AttributeError"),
        ("tiny_searches:Unmakeable", 2, "RuntimeError: no model"),
        ("no_such_module:Search", 2, "ModuleNotFoundError"),
        ("tiny_searches", 2, "is not module:name"),
    ],
)
def test_a_retriever_that_fails_is_a_sentence(
    run: Run, house_set: Path, spec: str, code: int, says: str
) -> None:
    result = run("evaluate", "run", str(house_set), "--retriever", spec)
    assert result.exit_code == code
    assert says in " ".join(result.stderr.split())


@pytest.mark.usefixtures("home")
def test_a_set_without_any_label_has_nothing_to_score(run: Run, house_set: Path) -> None:
    (house_set / "queries.jsonl").write_text('{"query_id": "q", "text": "?", "relevant_ids": []}')
    result = run("evaluate", "run", str(house_set))
    assert result.exit_code == 1
    assert "nothing to score" in result.stderr
