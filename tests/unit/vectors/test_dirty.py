from __future__ import annotations

import shutil
from typing import Any

import pytest

from noctuary.embed import tiers
from noctuary.embed.tiers import FULL_TIER, TableHome
from tests.support.tier_store import ROWS, TierStore, counts


def test_a_lost_tier_is_backfilled_and_no_other_is_touched(store: TierStore) -> None:
    first = store.sync()
    shutil.rmtree(store.lance / "memory_vectors_64.lance")
    report = store.sync()
    assert [t.action for t in report.tiers] == ["unchanged", "created", "unchanged"]
    (_, backfilled, _) = report.tiers
    assert counts(backfilled) == (ROWS, 0, 0)
    assert "not found" in backfilled.reason
    versions = [t.version for t in report.tiers]
    assert (versions[0], versions[2]) == (first.tiers[0].version, first.tiers[2].version)
    store.assert_equal_to_corpus()


def test_a_tier_that_a_night_left_half_written_is_rebuilt(store: TierStore) -> None:
    store.sync()
    store.home.mark_path("memory_vectors_64").write_text("left by a killed night")
    report = store.sync()
    assert [t.action for t in report.tiers] == ["unchanged", "rebuilt", "unchanged"]
    assert "was being written" in report.tiers[1].reason
    assert {t.action for t in store.sync().tiers} == {"unchanged"}, "the mark is gone"
    store.assert_equal_to_corpus()


@pytest.mark.parametrize("step", ["_create", "_apply", "settle_index"])
def test_a_write_that_fails_leaves_its_mark_and_the_next_night_repairs_it(
    store: TierStore, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    if step != "_create":
        store.sync()
        store.hashes[3] = "edited"
    real = vars(tiers)[step]

    def full_disk(*arguments: Any, **named: Any) -> Any:
        real(*arguments, **named)
        raise OSError("no space left")

    with monkeypatch.context() as patch:
        patch.setattr(tiers, step, full_disk)
        with pytest.raises(OSError, match="no space"):
            store.sync()
    assert store.home.is_dirty("memory_vectors_32")
    assert not store.home.is_dirty(FULL_TIER), "it was not begun"
    first, *others = store.sync().tiers
    assert first.action == "rebuilt"
    assert "was being written" in first.reason
    assert {t.action for t in others} == {"created" if step == "_create" else "synced"}
    assert not store.home.is_dirty("memory_vectors_32")
    store.assert_equal_to_corpus()


def test_marks_leave_with_the_tiers_of_other_dimensions(store: TierStore) -> None:
    store.sync()
    store.home.mark_path("memory_vectors_32").write_text("left by a killed night")
    store.sync(dims=(64,))
    assert not store.home.is_dirty("memory_vectors_32")


def test_a_night_without_change_writes_no_mark(
    store: TierStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.sync()

    def never(*_: Any) -> None:
        raise AssertionError("nothing is written")

    monkeypatch.setattr(TableHome, "marked", never)
    assert {t.action for t in store.sync().tiers} == {"unchanged"}
