"""What a new user mistypes or breaks off in the first hour, and what is left behind then."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from noctuary.work.content import read_manifest, store_directory
from noctuary_assets.evaluate import RECALL_ANSWERS_KIND
from noctuary_assets.night import CONTENT
from tests.e2e.conftest import FirstNight
from tests.e2e.driver import DONE, FAILED, ROOT, night_words, run, run_night
from tests.e2e.killing import kill_when
from tests.e2e.stores import Bench, build_full_source, build_small_source, give_encoder


@pytest.mark.parametrize(
    "words",
    ["nightly store=my.db", "nightly my.db", "nightly STROE=my.db", "ui gone.db", "recall q=key"],
)
def test_a_misspelt_call_of_make_runs_nothing_and_shows_the_right_form(
    words: str, tmp_path: Path
) -> None:
    (tmp_path / "my.db").touch()
    ran = run(["make", "-f", str(ROOT / "Makefile"), "-n", *words.split()], tmp_path)
    assert ran.code == 2
    assert "make nightly STORE=path/to/memory.db" in ran.err
    assert ran.out == ""


@pytest.mark.parametrize("words", ["nightly STORE=my.db", 'recall Q="a=b my.db"', "-j2 nightly"])
def test_the_right_form_is_understood(words: str, tmp_path: Path) -> None:
    ran = run(["bash", "-c", f"make -f {ROOT}/Makefile -n {words}"], tmp_path)
    assert ran.code == 0, ran.says


def _not_there(source: Path) -> None:
    source.unlink(missing_ok=True)


def _no_database(source: Path) -> None:
    source.write_text("not a database", encoding="utf-8")


@pytest.mark.parametrize("make", [_not_there, _no_database])
def test_a_night_that_fails_on_its_source_leaves_no_store(
    make: Callable[[Path], None], tmp_path: Path
) -> None:
    make(tmp_path / "memory.db")
    ran = run_night(tmp_path / "memory.db", tmp_path / "store", "--")
    assert ran.code == FAILED
    assert not (tmp_path / "store").exists()


def test_a_store_that_somebody_made_is_left_where_the_night_fails(tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / "merges.toml").touch()
    assert run_night(tmp_path / "gone.db", tmp_path / "store", "--").code == FAILED
    assert (tmp_path / "store" / "merges.toml").exists()


def _kept_answers(bench: Bench) -> int:
    """Count the answers that a night has written down so far."""
    directory = store_directory(bench.paths.work / CONTENT, RECALL_ANSWERS_KIND)
    return sum(one.rows for one in read_manifest(directory, RECALL_ANSWERS_KIND))


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT], ids=["killed", "Ctrl-C"])
def test_a_night_stopped_in_its_evaluation_asks_nothing_twice(
    how: signal.Signals, small_night: FirstNight, tmp_path: Path
) -> None:
    bench = Bench(build_full_source(tmp_path), tmp_path / "store")
    give_encoder(bench.store, small_night.bench)
    assert kill_when(bench, lambda: _kept_answers(bench) >= 128, how=how)
    kept = _kept_answers(bench)
    assert not (bench.store / "work" / "evaluation" / "runs.json").exists()
    again = run_night(bench.source, bench.store)
    assert again.code == DONE, again.says
    assert again.note("recall_evaluation", "answers_reused") == kept
    assert again.stage("memory_vectors")["reused"]
    assert _kept_answers(bench) == 0, "publishing forgets them"
    other = Bench(bench.source, tmp_path / "other")
    give_encoder(other.store, small_night.bench)
    whole = run_night(other.source, other.store)
    assert "answers_reused" not in whole.stage("recall_evaluation")["notes"]
    for name in ("runs.json", "report.json"):
        path = Path("work", "evaluation", name)
        assert (bench.store / path).read_bytes() == (other.store / path).read_bytes()
    assert bench.manifest.digest == other.manifest.digest


@pytest.mark.slow
@pytest.mark.parametrize("streams", ["", "2>&1"])
def test_a_night_that_nobody_watches_to_its_end_publishes(
    streams: str, small_night: FirstNight, tmp_path: Path
) -> None:
    """`noctuary nightly | head -1`."""
    bench = Bench(build_small_source(tmp_path), tmp_path / "store")
    give_encoder(bench.store, small_night.bench)
    words = " ".join(night_words(bench.source, bench.store))
    ran = run(["bash", "-c", f"{words} {streams} | head -1; exit ${{PIPESTATUS[0]}}"], tmp_path)
    assert ran.code == DONE, ran.says
    assert "Traceback" not in ran.err
    assert "roken pipe" not in ran.err
    assert bench.serving
