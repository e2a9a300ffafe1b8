"""The tiers in a whole night: a large store's pack carries the short one, a lost one comes back."""

from __future__ import annotations

import shutil
import sys

import numpy as np
import pytest

from noctuary.embed.tiers import FULL_TIER, TableHome, tiers_match
from noctuary.recall.legs import rank_dense
from noctuary.recall.reader import SnapshotReader
from tests.e2e.driver import DONE, Ran, night_words, run, run_night
from tests.e2e.stores import Bench

_SMALL_IS_LARGE = """
import sys
import noctuary_assets.publish
noctuary_assets.publish.FUNNEL_MIN_ROWS = 10
from noctuary.cli.main import main
main(sys.argv[1:])
"""


def night_of_a_large_store(bench: Bench) -> Ran:
    """Run a night to which ten memories are many; nothing else is changed."""
    words = night_words(bench.source, bench.store, "--json")
    return run([sys.executable, "-c", _SMALL_IS_LARGE, *words[3:]], bench.store.parent)


@pytest.mark.slow
def test_a_large_store_is_served_through_its_short_tier(small: Bench) -> None:
    scanned = SnapshotReader.open(small.snapshot)
    assert scanned.tier is None
    ran = night_of_a_large_store(small)
    assert ran.code == DONE, ran.says
    assert ran.report["status"] == "published", ran.says
    tiered = SnapshotReader.open(small.snapshot)
    assert tiered.tier is not None
    assert tiered.tier.vectors.shape == (tiered.count, 64)
    assert set(tiered.tier_exits) == {64, 256}
    assert scanned.vectors is not None
    for query in np.array(scanned.vectors[::20]):
        legs = [rank_dense(reader, query, None, 10) for reader in (scanned, tiered)]
        assert legs[0].ranking.tolist() == legs[1].ranking.tolist()
    again = night_of_a_large_store(small)
    assert again.report["status"] == "unchanged", "the tier is part of what was stamped"


@pytest.mark.slow
def test_a_lost_and_a_half_written_tier_come_back_and_the_night_says_so(small: Bench) -> None:
    lance = small.paths.lance
    shutil.rmtree(lance / "memory_vectors_64.lance")
    TableHome(lance).mark_path("memory_vectors_256").write_text("left by a killed night")
    ran = run_night(small.source, small.store)
    assert ran.code == DONE, ran.says
    assert ran.report["status"] == "unchanged", "tiers are no part of a snapshot"
    created, rebuilt = (ran.note("vector_tiers", name) for name in ("created", "rebuilt"))
    assert list(created) == ["memory_vectors_64"]
    assert list(rebuilt) == ["memory_vectors_256"]
    assert "was being written" in rebuilt["memory_vectors_256"]
    rows = small.manifest.counts["memories"]
    assert ran.note("vector_tiers", "rows_written") == 2 * rows
    ids = [match.rows for match in tiers_match(TableHome(lance), [])]
    assert ids == [rows] * 3
    assert (lance / f"{FULL_TIER}.lance").is_dir()
    assert not list(lance.glob("*.dirty"))
