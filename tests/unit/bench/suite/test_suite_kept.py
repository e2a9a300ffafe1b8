from __future__ import annotations

import gzip
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.suite.evaluation import EvaluatedSet
from bench.suite.kept import KeptRankings, cut, read_kept, write_kept
from bench.suite.plan import DEPTH
from bench.suite.result import keep
from noctuary.core.errors import SourceFormatError
from noctuary.evaluate.run import Run
from tests.support.labelled_set import SmallSet

# Without a time: it would be in the tests' names, which must not differ between two workers.
NO_RANKINGS = [gzip.compress(b"{}", mtime=0), gzip.compress(b"[1]", mtime=0)]
IDS = st.text(st.characters(codec="utf-8"), min_size=1, max_size=5)


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


@given(st.lists(st.lists(IDS, max_size=4).map(tuple), min_size=1, max_size=4), st.booleans())
def test_any_ranking_survives_the_file(
    tmp_path_factory: pytest.TempPathFactory, rankings: list[tuple[str, ...]], scored: bool
) -> None:
    path = tmp_path_factory.mktemp("kept") / "x.json.gz"
    runs = {
        "noctuary": run_of("noctuary", rankings, 0.25 if scored else None),
        "rrf": run_of("rrf", [tuple(reversed(ranking)) for ranking in rankings]),
    }
    kept = KeptRankings("tiny", "digest", {"all": runs})
    write_kept(path, kept)
    assert read_kept(path) == kept


def test_a_run_is_cut_to_the_kept_depth_and_only_judged_scores_are_kept() -> None:
    long = tuple(str(n) for n in range(DEPTH + 5))
    assert cut(run_of("noctuary", [long], 0.12345678)).rankings == (long[:DEPTH],)
    assert cut(run_of("noctuary", [long], 0.12345678)).top_scores == (0.123457,)
    assert cut(run_of("rrf", [long], 0.5)).top_scores == (None,)


@pytest.mark.parametrize("content", [b"", b"no gzip", *NO_RANKINGS])
def test_a_file_that_holds_no_rankings_says_what_to_run(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "x.json.gz").write_bytes(content)
    with pytest.raises(SourceFormatError, match="make bench-quality"):
        read_kept(tmp_path / "x.json.gz")
