from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import Result

from noctuary.cli.evaluate import evaluate
from noctuary.evaluate.run import Run as RetrieverRun
from noctuary.evaluate.run import read_run, write_run
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
    first = run_json("evaluate", "run", str(house_set), "--limit", "1")
    assert (first["report"]["n"], first["abstention"]["n_unanswerable"]) == (1, 1)
    assert first["report"]["overall"]["recall@10"]["low"] is None
    queries = house_set / "queries.jsonl"
    row = json.loads(queries.read_text().splitlines()[0])
    queries.write_text(json.dumps({**row, "as_of": "2025-01-01"}) + "\n")
    before = tmp_path / "before.json"
    value = run_json("evaluate", "run", str(house_set), "--out", str(before))
    assert "101" not in read_run(before)[0].rankings[0]
    assert value["report"]["overall"]["recall@10"]["mean"] == 0.0


@pytest.mark.parametrize(
    ("label", "other", "code", "says"),
    [
        ("10", "90", 1, ["holds none of the 3 labelled memories of household", "nightly "]),
        ("103", "903", 0, ["! labels_not_in_snapshot: ", "lacks 1 of 3 labelled memories"]),
    ],
)
def test_labels_that_the_snapshot_lacks_are_said(
    run: Run, dense_store: Store, house_set: Path, label: str, other: str, code: int,
    says: list[str],
) -> None:  # fmt: skip
    for name in ("corpus", "queries"):
        path = house_set / f"{name}.jsonl"
        path.write_text(path.read_text().replace(label, other))
    result = run("evaluate", "run", str(house_set))
    assert result.exit_code == code
    assert all(text in result.stderr for text in says)


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
    run: Run, run_json: RunJson, house_set: Path, tmp_path: Path
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


N = 40


def keep_run(
    path: Path, name: str, rankings: Sequence[Sequence[str]], ids: Sequence[str] = (), k: int = 10
) -> str:
    run = RetrieverRun(
        name=name, k=k, depth=len(rankings[0]) if k == 10 else k,
        query_ids=tuple(ids) or tuple(f"q{i}" for i in range(len(rankings))),
        rankings=tuple(map(tuple, rankings)), top_scores=(None,) * len(rankings),
        latency_ms=None, build_ms=None, index_bytes=None, unstable_prefixes=0,
    )  # fmt: skip
    write_run(path, run, {})
    return str(path)


def found_at(*wanted: int) -> list[list[str]]:
    """Rankings that hold the relevant memory of each query at a rank; 0 means not at all."""
    return [["hit" if r == at else f"miss{r}" for r in range(1, 51)] for at in wanted]


@pytest.fixture
def runs(tmp_path: Path) -> tuple[str, str]:
    """Ours finds every second one first and the rest nowhere; the baseline finds nothing."""
    ours = keep_run(tmp_path / "ours.json", "ours", found_at(*(1 - i % 2 for i in range(N))))
    return ours, keep_run(tmp_path / "none.json", "none", found_at(*[0] * N))


@pytest.fixture
def queries(tmp_path: Path) -> Path:
    folder = tmp_path / "set"
    folder.mkdir()
    rows = [
        {
            "query_id": f"q{i}",
            "text": "?",
            "stratum": "even" if i % 2 == 0 else "odd",
            "relevant_ids": ["hit"],
        }
        for i in range(N)
    ]
    rows.append({"query_id": "none", "text": "?", "relevant_ids": []})
    (folder / "queries.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder / "queries.jsonl"


def test_a_difference_is_shown_with_interval_p_holm_and_power(
    run: Run, runs: tuple[str, str], queries: Path
) -> None:
    result = run("evaluate", "compare", *runs, "--queries", str(queries), "--metric", "recall@5")
    assert result.exit_code == 0
    title, _, header, overall, even, odd = result.stdout.splitlines()
    assert title == "ours - none"
    for word in ("difference", "95 % interval", "p", "Holm", "detectable", "won/lost/tied"):
        assert word in header
    assert overall.split()[:2] == ["recall@5", "+0.500"]
    assert overall.split()[-2:] == ["20/0/20", "*"]
    assert even.split() == [
        "even", "+1.000", "[+1.000,", "+1.000]", "0.0001", "0.0002", "0.000", "20", "20/0/0", "*",
    ]  # fmt: skip
    assert odd.split()[:2] == ["odd", "+0.000"]
    assert odd.split()[-1] == "0/0/20"


def test_the_default_metrics_are_compared_and_the_sign_is_that_of_the_first_run(
    run_json: RunJson, runs: tuple[str, str], queries: Path
) -> None:
    ours, none = runs
    value = run_json("evaluate", "compare", ours, none, "--queries", str(queries.parent))
    assert (value["ours"], value["baseline"]) == ("ours", "none")
    assert (value["queries"], value["of"], set(value["strata"])) == (N, N, {"even", "odd"})
    assert list(value["overall"]) == [
        "recall@5", "recall@10", "all_relevant@10", "precision@5", "ndcg@10", "mrr@50", "map@50",
    ]  # fmt: skip
    overall = value["overall"]["mrr@50"]
    assert (overall["mean"], overall["wins"]) == (0.5, 20)
    assert 0.0 < overall["low"] < 0.5 < overall["high"] < 1.0
    assert overall["minimum_detectable"] == pytest.approx(2.801585 * 0.506370 / N**0.5, abs=1e-4)
    only = ("--queries", str(queries), "--metric", "mrr@50")
    swapped = run_json("evaluate", "compare", none, ours, *only)["overall"]["mrr@50"]
    assert (swapped["mean"], swapped["losses"]) == (-0.5, 20)


def test_runs_over_different_queries_are_refused_and_unasked_ones_said(
    run: Run, tmp_path: Path, queries: Path
) -> None:
    a = keep_run(tmp_path / "a.json", "a", found_at(1, 1, 1))
    b = keep_run(tmp_path / "b.json", "b", found_at(1, 1))
    result = run("evaluate", "compare", b, b, "--queries", str(queries))
    assert result.exit_code == 0
    assert "! some_queries_not_asked: compared on 2 of 40" in result.stderr
    result = run("evaluate", "compare", a, b, "--queries", str(queries))
    assert result.exit_code == 1
    assert "1 labelled queries were asked of only one of 'a' and 'b'" in result.stderr
    assert "['q2']" in result.stderr
    other = keep_run(tmp_path / "c.json", "c", found_at(1), ids=["q900"])
    result = run("evaluate", "compare", other, other, "--queries", str(queries))
    assert result.exit_code == 1
    assert "are they runs of another set?" in result.stderr


def test_files_that_are_missing_or_too_shallow_are_a_sentence(
    run: Run, run_json: RunJson, runs: tuple[str, str], tmp_path: Path, queries: Path
) -> None:
    gone = str(tmp_path / "gone.json")
    assert "no run file at" in run("evaluate", "compare", runs[0], gone, "--queries", gone).stderr
    assert "no query file" in run("evaluate", "compare", *runs, "--queries", gone).stderr
    deep = ("--metric", "recall@100")
    value = run_json("evaluate", "compare", *runs, "--queries", str(queries), *deep, code=1)
    assert "too shallow" in value["message"]


COMMANDS = {"check", "run", "compare"}


@pytest.fixture
def sets(tmp_path: Path) -> tuple[Path, Path]:
    """A set that loads and one with two faults."""
    for name, label in (("good", 1), ("broken", 9)):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "corpus.jsonl").write_text('{"id": 1, "content": "The key."}\n')
        rows = [
            {"query_id": "q1", "text": "Key?", "stratum": "exact", "relevant_ids": [1]},
            {"query_id": "q2", "text": "Key?", "stratum": "vague", "relevant_ids": [label]},
            {"query_id": "q3", "text": "Boat?", "relevant_ids": []},
        ]
        (folder / "queries.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    with (tmp_path / "broken" / "queries.jsonl").open("a") as handle:
        handle.write('{"query_id": "q4", "text": "Wh')
    return tmp_path / "good", tmp_path / "broken"


@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_every_command_teaches_with_an_example_and_takes_json(run: Run, command: str) -> None:
    assert set(evaluate.commands) == COMMANDS
    result = run("evaluate", command, "--help")
    assert result.exit_code == 0
    assert f"\n  noctuary evaluate {command} " in result.output
    assert "--json" in result.output
    options = [p for p in evaluate.commands[command].params if isinstance(p, click.Option)]
    assert all(option.help for option in options)


def test_a_set_that_cannot_load_is_named_with_its_lines_and_others_are_checked(
    run: Run, run_json: RunJson, sets: tuple[Path, Path], tmp_path: Path
) -> None:
    good, broken = sets
    alone = run("evaluate", "check", str(good))
    assert alone.exit_code == 0
    said = " ".join(alone.stdout.split())
    assert said == "good ok 1 memories 2 queries in 2 strata 1 unanswerable"
    no_sets = run("evaluate", "check", str(tmp_path), str(tmp_path / "gone"))
    assert no_sets.exit_code == 1
    assert "is not a labelled set: it lacks corpus.jsonl.gz" in no_sets.stdout
    assert "gone is not a folder" in no_sets.stdout
    whole, faulty = run_json("evaluate", "check", *map(str, sets), code=1)["sets"]
    assert whole == {
        "name": "good", "memories": 1, "queries": 2, "strata": {"exact": 1, "vague": 1},
        "unanswerable": 1,
    }  # fmt: skip
    assert faulty["error"] == "QueryFileError"
    assert [(f["line"], f["kind"]) for f in faulty["faults"]] == [
        (2, "unknown_label"), (4, "half_written_line"),
    ]  # fmt: skip
    result = run("evaluate", "check", str(broken), str(good))
    assert result.exit_code == 1
    assert f"broken  FAIL  {broken / 'queries.jsonl'} has 2 faults:" in result.stdout
    assert "line 2: query 'q2' names ids that the corpus lacks: ['9']" in result.stdout
    assert "line 4: half-written or not JSON" in result.stdout
    assert "good    ok " in result.stdout
