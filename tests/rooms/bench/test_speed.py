from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bench import engines
from bench.engines import make_clustered, make_unclustered, measure
from bench.speed.clock import Ask, ratio_p50, take_turns
from bench.speed.corpus import make_corpus, make_questions, make_records
from bench.speed.oneshot import child_environment, paired_ratio
from bench.speed.pack import build_store
from bench.speed.targets import Target, compare, judge
from noctuary.core.errors import StoreError
from noctuary.core.types import content_hash
from noctuary.embed.lean import LeanEncoder
from noctuary.recall.engine import Recaller
from noctuary.text.tokens import document_tokens
from tests.support.lean import write_encoder


def _recording(names: str, seen: list[tuple[str, int]]) -> dict[str, Ask]:
    def recorder(name: str) -> Ask:
        return lambda number: seen.append((name, number))

    return {name: recorder(name) for name in names}


def test_every_system_gets_its_questions_and_the_order_turns() -> None:
    seen: list[tuple[str, int]] = []
    times = take_turns(_recording("ab", seen), {"a": range(3), "b": [0, 2]})
    assert {name: sorted(found) for name, found in times.items()} == {"a": [0, 1, 2], "b": [0, 2]}
    assert seen == [("a", 0), ("b", 0), ("a", 1), ("a", 2), ("b", 2)]
    turned: list[tuple[str, int]] = []
    take_turns(_recording("abc", turned), dict.fromkeys("abc", range(3)))
    assert "".join(name for name, _ in turned) == "abcbcacab"


def test_a_ratio_compares_the_questions_that_both_were_asked() -> None:
    assert ratio_p50({0: 2.0, 1: 4.0, 2: 900.0}, {0: 1.0, 1: 1.0, 7: 500.0}) == 3.0
    with pytest.raises(ValueError, match="both"):
        ratio_p50({0: 1.0}, {1: 1.0})


def test_rounds_are_compared_pair_by_pair() -> None:
    assert paired_ratio([2.0, 30.0, 8.0], [1.0, 10.0, 2.0, 99.0]) == 3.0


def test_measured_processes_have_compiled_modules_and_one_thread() -> None:
    found = child_environment(
        {"PYTHONDONTWRITEBYTECODE": "1", "OPENBLAS_NUM_THREADS": "8", "HOME": "/h"}, Path("/cache")
    )
    assert "PYTHONDONTWRITEBYTECODE" not in found
    assert found["OPENBLAS_NUM_THREADS"] == "1"
    assert (found["HOME"], found["PYTHONPYCACHEPREFIX"]) == ("/h", "/cache")


def test_a_corpus_depends_on_nothing_but_size_and_seed() -> None:
    one, again, other = make_corpus(50, 1), make_corpus(50, 1), make_corpus(50, 2)
    assert make_records(one) == make_records(again)
    assert make_questions(one, 5)[0] == make_questions(again, 5)[0]
    assert one.text(0) != other.text(0)


def test_a_recall_finds_the_texts_as_they_were_published() -> None:
    """A text whose hash is of another row is left out of every answer as damaged."""
    assert all(r.content_hash == content_hash(r) for r in make_records(make_corpus(50)))


def test_tokens_are_those_that_the_library_indexes() -> None:
    corpus = make_corpus(60)
    records = make_records(corpus)
    expected = [
        document_tokens(r.content, r.tags, r.expanded_keywords, r.category) for r in records
    ]
    assert list(corpus.tokens()) == expected


def test_a_synthetic_store_is_published_and_answers(tmp_path: Path) -> None:
    donor = tmp_path / "donor"
    encoder: LeanEncoder = write_encoder(donor / "encoders")
    with pytest.raises(StoreError, match="no query encoder"):
        build_store(tmp_path / "other", 30, tmp_path / "empty")
    build_store(tmp_path / "synthetic", 30, donor)
    recaller = Recaller.open(tmp_path / "synthetic")
    assert recaller.reader.count == 30
    assert recaller.reader.manifest.encoder_digest == encoder.fingerprint.digest
    content = make_corpus(30).text(7)
    found = recaller.recall(content, 3)
    assert found.memories[0].content == content


def store(memories: int, p95_ms: float, *, ratio: float = 0.5, synthetic: bool = True) -> Any:
    times = {"p50_ms": 1.0, "p95_ms": p95_ms, "n": 9}
    return {
        "store": f"s{memories}",
        "memories": memories,
        "synthetic": synthetic,
        "runtime_not_used": "",
        "systems": {"recall": times, "recall_known_vector": times, "fts_seed": times},
        "ratio_to_fts_seed": {"recall": ratio, "recall_known_vector": ratio, "fts_seed": 1.0},
        "ratio_to_fts_plain": {"recall": ratio, "recall_known_vector": ratio, "fts_seed": 1.0},
        "resident": {"VmRSS": memories / 1000, "RssFile": 1.0},
        "phases_ms": {"lexical": 0.1, "total": 0.2},
    }


def oneshot(**ratios: float) -> Any:
    good = {
        "import_recall_to_numpy": 1.2,
        "recall_to_numpy": 1.5,
        "client_to_bare": 2.5,
        "library_to_recall": 30.0,
    }
    times = {"median_ms": 10.0, "min_ms": 9.0, "rounds": 3}
    names = ("bare", "import_numpy", "import_recall", "recall", "client", "command", "library")
    return {"systems": dict.fromkeys(names, times), "ratios": {**good, **ratios}}


def met(targets: list[dict[str, Any]]) -> dict[str, bool]:
    return {target["name"]: target["met"] for target in targets}


def test_a_limit_is_still_kept_where_it_is_reached() -> None:
    assert Target("x", 2.0, 2.0).met
    assert Target("x", 20.0, 20.0, at_least=True).met
    assert not Target("x", 2.01, 2.0).met
    assert not Target("x", 19.9, 20.0, at_least=True).met
    assert not Target("x", float("nan"), 2.0).met


@pytest.mark.parametrize(
    ("changed", "missed"),
    [
        ({"recall_to_numpy": 1.61}, "one-shot recall / import numpy"),
        ({"client_to_bare": 3.1}, "client / bare interpreter"),
        ({"library_to_recall": 19.9}, "sentence-transformers process / one-shot recall"),
        ({"import_recall_to_numpy": 1.31}, "import of the recall function / import numpy"),
    ],
)
def test_each_promise_of_fresh_processes_is_held_on_its_own(
    changed: dict[str, float], missed: str
) -> None:
    assert all(met(judge([], oneshot())).values())
    assert [name for name, kept in met(judge([], oneshot(**changed))).items() if not kept] == [
        missed
    ]


def test_a_recall_that_knows_its_vector_must_be_three_times_as_fast() -> None:
    found = met(judge([store(10_000, 1.0, ratio=0.31)], None))
    assert found["s10000: warm recall / FTS5, p50"]
    assert not found["s10000: warm recall without encoding / FTS5, p50"]


@pytest.mark.parametrize(
    ("measured", "said"),
    [(1.5, "OK"), (1.66, "OK"), (1.72, "OKish"), (1.8, "FAIL"), (math.nan, "FAIL")],
)
def test_what_creeps_in_is_said_beside_the_committed_figure(measured: float, said: str) -> None:
    found = compare({"import_recall_to_numpy": measured}, {"import_recall_to_numpy": 1.61})
    assert [verdict for *_, verdict in found] == [said]
    assert compare({}, {"import_recall_to_numpy": 1.61}) == []


@pytest.fixture(autouse=True)
def few_queries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engines, "QUERIES", 12)


def test_unclustered_vectors_have_the_covariance_of_the_real_ones() -> None:
    real = make_clustered(2_000)[:, :8]
    real = real / np.linalg.norm(real, axis=1, keepdims=True)
    made = make_unclustered(4_000, real)
    assert made.shape == (4_000, 8)
    np.testing.assert_allclose(np.cov(made.T), np.cov(real.T), atol=0.05)


def test_recall_is_the_share_of_the_exact_answer() -> None:
    queries = np.zeros((engines.QUERIES, 4), dtype=np.float32)
    found = engines.compare({"exact": lambda _: range(10), "half": lambda _: range(5, 15)}, queries)
    assert (found["exact"]["recall@10"], found["half"]["recall@10"]) == (1.0, 0.5)
    assert all(engine["p50_ms"] <= engine["p95_ms"] for engine in found.values())


def test_the_index_is_the_one_that_a_night_builds() -> None:
    made = make_clustered(612)
    found = measure("clustered", made[:600], made[600:].copy(), lance=True)
    assert found["engines"]["lancedb"]["recall@10"] > 0.9
    assert "lancedb" in found["build_s"]
