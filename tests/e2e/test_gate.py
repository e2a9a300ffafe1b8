"""A bad summary, a strict threshold, a publish without a verdict: what serves keeps serving."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import Path

import pytest

from noctuary.compact.summaries import iter_summaries
from noctuary.core.errors import PublishRefusedError
from noctuary.snapshot.publish import FAIL, PASS, read_verdict
from noctuary.work.ledger import end_night
from noctuary_assets.night import SUMMARIES
from tests.e2e.conftest import FirstNight
from tests.e2e.driver import DONE, REFUSED, run_night
from tests.e2e.partial_run import (
    BEFORE_THE_CANDIDATE,
    FROM_THE_CANDIDATE,
    TO_THE_CANDIDATE,
    materialize,
)
from tests.e2e.stores import Bench, add_memory, answers, fingerprint_tree, leftovers
from tests.support.clusters import write_summaries

UNRELATED = "Penguins huddle on the antarctic ice while the blizzard lasts."
CHECK = "every_summary_preserves_its_sources"
QUERIES = ["boiler error", "duplicate captures of invoices", "who is my manager"]


def _replace_a_summary(bench: Bench) -> None:
    """Put an unrelated text where an accepted summary was; its status and report stay."""
    path = bench.paths.work / SUMMARIES
    found = list(iter_summaries(path))
    place = next(i for i, s in enumerate(found) if s.status == "accepted")
    found[place] = replace(found[place], text=UNRELATED)
    write_summaries(path, found)


def _stamp_as_if_made_so(bench: Bench) -> None:
    """Let the stamp vouch for the file: a summariser that lies, not a file that was damaged."""
    stamp = bench.paths.work / "stamps" / "summaries.json"
    content = json.loads(stamp.read_text())
    digest = hashlib.sha256((bench.paths.work / SUMMARIES).read_bytes()).hexdigest()
    assert content["outputs"][SUMMARIES] != digest
    content["outputs"][SUMMARIES] = digest
    stamp.write_text(json.dumps(content))
    end_night(bench.paths, finished=True)


def _candidate_digest(bench: Bench) -> str:
    stamp = bench.paths.work / "stamps" / "snapshot_candidate.json"
    return json.loads(stamp.read_text())["facts"]["digest"]


def test_a_lying_summary_fails_the_gate_and_the_next_night_heals(small: Bench) -> None:
    add_memory(small.source, "The bakery on Alder Street closes at two on Mondays.")
    yesterday, answered = small.serving, answers(small, QUERIES)
    untouched = fingerprint_tree(small.snapshot)
    assert small.paths.quiet.exists()
    assert materialize(small, BEFORE_THE_CANDIDATE).success
    _replace_a_summary(small)
    _stamp_as_if_made_so(small)

    ran = materialize(small, FROM_THE_CANDIDATE)

    assert not ran.success
    assert not small.paths.quiet.exists(), "the next night must not take this one for whole"
    assert ran.failed_checks == {CHECK, "the_gate_passed_this_candidate"}
    # The page about the refused night is there; nothing was published, nor planned.
    assert set(FROM_THE_CANDIDATE) - ran.made == {"snapshot"}
    assert any(
        CHECK in error and "yesterday's snapshot keeps serving" in error for error in ran.errors
    )
    verdict = read_verdict(small.paths, _candidate_digest(small))
    assert verdict is not None
    assert verdict.outcome == FAIL
    assert [c.name for c in verdict.checks if not c.passed] == [CHECK]
    assert small.serving == yesterday
    assert fingerprint_tree(small.snapshot) == untouched
    assert answers(small, QUERIES) == answered

    healed = run_night(small.source, small.store)
    assert healed.code == DONE, healed.says
    assert healed.report["status"] == "published"
    assert UNRELATED not in [s.text for s in iter_summaries(small.paths.work / SUMMARIES)]
    assert small.ask("bakery on Mondays", 1).memories[0].content.startswith("The bakery")
    assert leftovers(small.store) == []


def test_the_command_says_that_the_gate_refused(small: Bench) -> None:
    yesterday = small.serving
    _replace_a_summary(small)
    _stamp_as_if_made_so(small)
    ran = run_night(small.source, small.store)
    assert ran.code == REFUSED, ran.says
    assert ran.report["status"] == "refused"
    assert CHECK in ran.report["message"]
    assert ran.report["snapshot_id"] == small.serving == yesterday
    assert "Traceback" not in ran.says


@pytest.mark.slow
def test_a_damaged_summary_table_is_made_again(small: Bench) -> None:
    """Readable, but not what its stamp says: nothing of it may be taken over."""
    _replace_a_summary(small)
    ran = run_night(small.source, small.store)
    assert ran.code == DONE, ran.says
    assert ran.report["status"] == "unchanged"
    assert UNRELATED not in [s.text for s in iter_summaries(small.paths.work / SUMMARIES)]


def test_a_damaged_summary_table_stops_a_partial_run(small: Bench) -> None:
    yesterday = small.serving
    _replace_a_summary(small)
    ran = materialize(small, FROM_THE_CANDIDATE)
    assert not ran.success
    assert any("summaries is missing or damaged" in error for error in ran.errors), ran.errors
    assert small.serving == yesterday


@pytest.mark.slow
def test_a_strict_threshold_declines_summaries_and_the_night_still_publishes(small: Bench) -> None:
    assert small.manifest.counts["summaries"] > 0
    ran = run_night(
        small.source, small.store, extra={"NOCTUARY_COMPACTION_PRESERVE_THRESHOLD": "0.99"}
    )
    assert ran.code == DONE, ran.says
    assert ran.report["status"] == "published"
    facts = ran.stage("summaries")["facts"]
    assert facts["by_status"].get("accepted", 0) == 0
    assert small.manifest.counts["summaries"] == 0
    declined = list(iter_summaries(small.paths.work / SUMMARIES))
    assert all(s.report is None or not s.report.passed for s in declined)
    assert small.ask(QUERIES[0]).memories


def test_publishing_alone_refuses_on_a_store_that_has_nothing(
    small_night: FirstNight, small: Bench
) -> None:
    empty = replace(small, store=small.store.parent / "empty")
    ran = materialize(empty, ["snapshot"])
    assert not ran.success
    assert any("there is no candidate to publish" in error for error in ran.errors), ran.errors
    assert not empty.paths.current.exists()
    assert small_night.bench.ask(QUERIES[0]).memories


@pytest.fixture(scope="module")
def waiting(small_night: FirstNight, tmp_path_factory: pytest.TempPathFactory) -> Bench:
    """A bench whose new candidate nobody has judged. Not to be changed: copy it."""
    bench = small_night.bench.twin(tmp_path_factory.mktemp("waiting"))
    add_memory(bench.source, "The bakery on Alder Street closes at two on Mondays.")
    assert materialize(bench, (*BEFORE_THE_CANDIDATE, *TO_THE_CANDIDATE)).success
    return bench


@pytest.mark.parametrize("verdict", ["absent", "of another candidate", "damaged", "fail"])
def test_publishing_alone_refuses_without_a_pass_for_exactly_this_candidate(
    verdict: str, waiting: Bench, tmp_path: Path
) -> None:
    bench = waiting.twin(tmp_path / "bench")
    yesterday = bench.serving
    passed = (bench.paths.verdicts / f"{bench.manifest.digest}.json").read_text()
    digest = _candidate_digest(bench)
    assert digest != bench.manifest.digest
    place = bench.paths.verdicts / f"{digest}.json"
    if verdict == "of another candidate":
        place.write_text(passed)
    elif verdict == "damaged":
        place.write_text(passed[: len(passed) // 2])
    elif verdict == "fail":
        place.write_text(passed.replace(bench.manifest.digest, digest).replace(PASS, FAIL))

    ran = materialize(bench, ["snapshot"])

    assert not ran.success
    expected = "the gate failed" if verdict == "fail" else "has no verdict"
    assert any(expected in error and digest[:12] in error for error in ran.errors), ran.errors
    assert any(PublishRefusedError.__name__ in error for error in ran.errors)
    assert bench.serving == yesterday
