from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from stat import S_IMODE

import pytest

from noctuary.core import store as layout
from noctuary.core.errors import PublishRefusedError, SnapshotCorruptError, StoreError
from noctuary.core.files import remove_tree
from noctuary.core.manifest import full_check, read_manifest, read_pointer
from noctuary.recall.engine import Recaller
from noctuary.snapshot import publish
from noctuary.snapshot.publish import (
    CheckResult,
    find_by_digest,
    list_snapshots,
    publish_candidate,
    store_verdict,
)
from tests.support.store import Store, household, memory, renumber

FAILED = CheckResult("no_sensitive_row_is_anywhere", False, {"memories": 1})
PASSED = CheckResult("no_sensitive_row_is_anywhere", True, {"memories": 0})


def digest_of(candidate: Path) -> str:
    return read_manifest(candidate).digest


def publish_digest(store: Store, digest: str) -> publish.Publication:
    return publish_candidate(store.paths, digest, store.keep)


def assert_nothing_serves(store: Store) -> None:
    assert not store.paths.current.exists()
    assert list_snapshots(store.paths) == []


def test_without_a_verdict_publish_refuses(empty_store: Store) -> None:
    candidate = empty_store.candidate(household())
    with pytest.raises(PublishRefusedError, match="no verdict"):
        publish_digest(empty_store, digest_of(candidate))
    assert_nothing_serves(empty_store)
    assert candidate.is_dir()


def test_a_failed_gate_refuses_and_names_the_check(empty_store: Store) -> None:
    digest = digest_of(empty_store.candidate(household()))
    store_verdict(empty_store.paths, digest, [FAILED])
    with pytest.raises(PublishRefusedError, match="no_sensitive_row_is_anywhere"):
        publish_digest(empty_store, digest)
    assert_nothing_serves(empty_store)


def test_a_failed_gate_leaves_yesterdays_snapshot_serving(plain_store: Store) -> None:
    before = plain_store.paths.current.read_bytes()
    digest = digest_of(plain_store.candidate(renumber([memory("Only this.")])))
    store_verdict(plain_store.paths, digest, [PASSED, FAILED])
    with pytest.raises(PublishRefusedError, match="yesterday"):
        publish_digest(plain_store, digest)
    assert plain_store.paths.current.read_bytes() == before
    assert Recaller.open(plain_store.root).recall("spare key").memories[0].id == 101


def test_a_pass_of_another_candidate_does_not_count(empty_store: Store) -> None:
    judged = empty_store.judge(empty_store.candidate(household()))
    other = digest_of(empty_store.candidate(renumber([memory("Only this.")])))
    assert judged != other
    with pytest.raises(PublishRefusedError, match="no verdict"):
        publish_digest(empty_store, other)
    assert_nothing_serves(empty_store)


def test_another_candidate_in_the_judged_one_s_place_is_refused(empty_store: Store) -> None:
    good = empty_store.candidate(household())
    digest = empty_store.judge(good)
    other = empty_store.candidate(renumber([memory("Swapped in.")]))
    remove_tree(good)
    other.rename(good)
    with pytest.raises(SnapshotCorruptError, match="the verdict is for"):
        publish_digest(empty_store, digest)
    assert_nothing_serves(empty_store)


@pytest.mark.parametrize("name", [layout.ROWS_FILE, layout.ARRAYS_FILE])
def test_a_candidate_changed_after_its_pass_is_refused(empty_store: Store, name: str) -> None:
    candidate = empty_store.candidate(household())
    digest = empty_store.judge(candidate)
    content = (candidate / name).read_bytes()
    (candidate / name).write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(SnapshotCorruptError, match=name):
        publish_digest(empty_store, digest)
    assert_nothing_serves(empty_store)


def test_a_candidate_that_is_gone_is_refused(empty_store: Store) -> None:
    candidate = empty_store.candidate(household())
    digest = empty_store.judge(candidate)
    remove_tree(candidate)
    with pytest.raises(StoreError, match="no candidate"):
        publish_digest(empty_store, digest)
    assert_nothing_serves(empty_store)


def test_publish_moves_the_candidate_and_points_at_it(empty_store: Store) -> None:
    candidate = empty_store.candidate(household())
    digest = empty_store.judge(candidate)
    publication = publish_digest(empty_store, digest)
    assert publication.published
    assert publication.removed == ()
    assert publication.snapshot_id.endswith(f"-{digest[:12]}")
    assert not candidate.exists()
    pointer = read_pointer(empty_store.paths)
    assert pointer.snapshot_id == publication.snapshot_id
    assert pointer.digest == digest
    assert pointer.previous_id is None
    assert pointer.reason == "publish"
    published_at = datetime.fromisoformat(pointer.published_at)
    assert timedelta(0) <= datetime.now(UTC) - published_at < timedelta(minutes=5)


def test_published_files_are_read_only(plain_store: Store) -> None:
    directory = plain_store.snapshot(read_pointer(plain_store.paths).snapshot_id)
    assert {S_IMODE(p.stat().st_mode) for p in directory.iterdir()} == {0o400}


def test_the_pointer_remembers_what_served_before(plain_store: Store) -> None:
    first = read_pointer(plain_store.paths).snapshot_id
    plain_store.publish(renumber([memory("Only this.")]))
    assert read_pointer(plain_store.paths).previous_id == first


def test_publishing_what_serves_changes_nothing(plain_store: Store) -> None:
    before = plain_store.paths.current.read_bytes()
    serving = read_pointer(plain_store.paths)
    again = publish_digest(plain_store, plain_store.judge(plain_store.candidate(household())))
    assert not again.published
    assert again.snapshot_id == serving.snapshot_id
    assert plain_store.paths.current.read_bytes() == before
    assert list_snapshots(plain_store.paths) == [serving.snapshot_id]


def test_a_night_killed_before_the_pointer_swap_is_completed(
    empty_store: Store,
) -> None:
    digest = empty_store.judge(empty_store.candidate(household()))
    installed = publish._install(empty_store.paths, digest)  # pyright: ignore[reportPrivateUsage]
    assert not empty_store.paths.current.exists()
    publication = publish_digest(empty_store, digest)
    assert publication.snapshot_id == installed
    assert list_snapshots(empty_store.paths) == [installed]
    assert Recaller.open(empty_store.root).recall("spare key").memories[0].id == 101


def test_a_killed_night_s_install_is_reused_when_the_candidate_was_built_again(
    empty_store: Store,
) -> None:
    digest = empty_store.judge(empty_store.candidate(household()))
    installed = publish._install(empty_store.paths, digest)  # pyright: ignore[reportPrivateUsage]
    empty_store.candidate(household())
    assert publish_digest(empty_store, digest).snapshot_id == installed
    assert list_snapshots(empty_store.paths) == [installed]


def test_a_damaged_install_is_not_reused(empty_store: Store) -> None:
    digest = empty_store.judge(empty_store.candidate(household()))
    installed = publish._install(empty_store.paths, digest)  # pyright: ignore[reportPrivateUsage]
    (empty_store.snapshot(installed) / layout.ARRAYS_FILE).unlink()
    with pytest.raises(StoreError):
        publish_digest(empty_store, digest)
    empty_store.candidate(household())
    healed = publish_digest(empty_store, digest).snapshot_id
    assert healed > installed
    assert Recaller.open(empty_store.root).snapshot_id == healed


@pytest.mark.parametrize("damage", ["missing", "truncated", "flipped"])
def test_publishing_again_heals_a_damaged_serving_snapshot(plain_store: Store, damage: str) -> None:
    broken = read_pointer(plain_store.paths).snapshot_id
    path = plain_store.snapshot(broken) / layout.ARRAYS_FILE
    content = path.read_bytes()
    path.unlink()
    if damage == "truncated":
        path.write_bytes(content[:-1])
    elif damage == "flipped":
        path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    healed = plain_store.publish(household())
    assert healed > broken
    pointer = read_pointer(plain_store.paths)
    assert pointer.snapshot_id == healed
    full_check(plain_store.snapshot(healed), read_manifest(plain_store.snapshot(healed)))


def test_a_clock_set_back_still_gives_later_names(
    plain_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = read_pointer(plain_store.paths).snapshot_id

    class Past(datetime):
        @classmethod
        def now(cls, tz: object = None) -> datetime:
            return datetime(2020, 2, 29, 23, 59, 59, tzinfo=UTC)

    monkeypatch.setattr(publish, "datetime", Past)
    second = plain_store.publish(renumber([memory("Second night.")]))
    third = plain_store.publish(renumber([memory("Third night.")]))
    assert first < second < third
    assert list_snapshots(plain_store.paths) == [first, second, third]


def test_find_by_digest_sees_candidates_and_published_ones(empty_store: Store) -> None:
    candidate = empty_store.candidate(household())
    digest = empty_store.judge(candidate)
    assert find_by_digest(empty_store.paths, digest) == candidate
    snapshot_id = publish_digest(empty_store, digest).snapshot_id
    assert find_by_digest(empty_store.paths, digest) == empty_store.snapshot(snapshot_id)
    assert find_by_digest(empty_store.paths, "0" * 64) is None


def test_a_foreign_directory_below_snapshots_does_not_stop_publishing(plain_store: Store) -> None:
    (plain_store.paths.snapshots / "lost+found").mkdir()
    new = plain_store.publish(renumber([memory("Only this.")]))
    assert read_pointer(plain_store.paths).snapshot_id == new
