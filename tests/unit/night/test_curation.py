"""The stage of the proposals: off, on, again, and after they were applied."""

from __future__ import annotations

from pathlib import Path

import pytest

from noctuary.core.settings import CorpusSettings
from noctuary.curate.apply import PROPOSALS, Where, apply_proposals, read_proposals, read_proposed
from noctuary.curate.stores import open_writable
from tests.support.curation import TEXT, Nights


@pytest.fixture
def nights(tmp_path: Path) -> Nights:
    return Nights(tmp_path)


def test_switched_off_it_leaves_an_empty_table_and_says_so(nights: Nights) -> None:
    result = nights.run(enabled=False)
    assert result.rows == 0
    assert result.facts["note"] == "off: curation.enabled is false"
    assert not read_proposals(nights.paths.work / PROPOSALS).is_on
    nights.edit("UPDATE memories SET content = 'Edited.' WHERE id = 1")
    assert nights.run(enabled=False).reused


def test_it_counts_by_kind_and_action(nights: Nights) -> None:
    facts = nights.run().facts
    assert facts["by_action"] == {"ADD": 1, "NOOP": 1, "SUPERSEDE": 1, "UPDATE": 1}
    assert facts["by_kind_and_action"] == {
        "contradiction NOOP": 1,
        "exact_duplicate UPDATE": 1,
        "fragments ADD": 1,
        "superseded SUPERSEDE": 1,
    }
    assert facts["would_supersede"] == 4


def test_an_unchanged_night_does_nothing_and_switching_it_off_forgets(nights: Nights) -> None:
    nights.run()
    assert nights.run().reused
    assert nights.run(enabled=False).rows == 0
    assert read_proposals(nights.paths.work / PROPOSALS).proposals == ()


def test_the_table_holds_no_text(nights: Nights) -> None:
    nights.run()
    written = str([p.to_json() for p in read_proposals(nights.paths.work / PROPOSALS).proposals])
    assert not any(word in written for word in ("harbour", "Tides", "Initech", "Deploy"))


def test_after_applying_the_next_night_finds_tombstones_and_no_new_successor(
    nights: Nights,
) -> None:
    nights.run()
    found = read_proposed(nights.paths.work)
    store = open_writable(found.source, CorpusSettings())
    due = [p for p in found.proposals if p.action != "NOOP"]
    apply_proposals(store, due, Where(is_own=True, text_of=found.text_of))
    store.close()
    nights.run()
    again = read_proposed(nights.paths.work)
    assert [(p.kind, p.memory_ids) for p in again.proposals] == [
        ("contradiction", ("7", "8")),
        *(("tombstone", (n,)) for n in ("1", "3", "4", "5")),
    ]
    assert again.text_of["1"] == f"[SUPERSEDED] {TEXT}"
