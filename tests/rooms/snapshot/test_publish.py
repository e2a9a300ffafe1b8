"""Sealing: what the evaluation adopted becomes part of the candidate, and of its digest."""

from __future__ import annotations

import os
import shutil
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from stat import S_IMODE

import pytest

from noctuary.core import store as layout
from noctuary.core.errors import (
    PublishRefusedError,
    SnapshotCorruptError,
    SnapshotMissingError,
    StoreError,
)
from noctuary.core.files import remove_tree
from noctuary.core.manifest import full_check, pack_digest, read_manifest, read_pointer
from noctuary.core.settings import RecallSettings, Settings
from noctuary.core.store import (
    ARRAYS_FILE,
    RANKING_FILE,
    StorePaths,
    last_night_hours,
    record_night,
)
from noctuary.recall.engine import Recaller
from noctuary.recall.profile import RetrievalProfile, configured_profile
from noctuary.recall.reader import SnapshotReader
from noctuary.snapshot import publish
from noctuary.snapshot.publish import (
    FAIL,
    PASS,
    CheckResult,
    apply_retention,
    drop_older_snapshots,
    find_by_digest,
    find_pack,
    list_snapshots,
    publish_candidate,
    read_verdict,
    rollback,
    seal_candidate,
    serving_manifest,
    store_verdict,
)
from tests.support.store import Store, household, memory, new_store, renumber

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


def test_a_night_killed_before_the_pointer_swap_is_completed(empty_store: Store) -> None:
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


DIGEST = "d" * 64
GOOD = CheckResult("rows_are_there", True, {"rows": 3})
BAD = CheckResult("vectors_are_unit", False, {"bad": 1, "ids": "7, 8"})


@pytest.mark.parametrize(
    ("checks", "outcome"),
    [([GOOD], PASS), ([GOOD, GOOD], PASS), ([GOOD, BAD], FAIL), ([BAD], FAIL), ([], FAIL)],
)
def test_pass_needs_at_least_one_check_and_every_check(
    tmp_path: Path, checks: list[CheckResult], outcome: str
) -> None:
    assert store_verdict(StorePaths(tmp_path), DIGEST, checks).outcome == outcome


def test_a_verdict_is_read_back_under_its_digest_only(tmp_path: Path) -> None:
    paths = StorePaths(tmp_path)
    stored = store_verdict(paths, DIGEST, [GOOD, BAD])
    assert read_verdict(paths, DIGEST) == stored
    assert read_verdict(paths, "e" * 64) is None


def test_a_newer_verdict_replaces_the_older(tmp_path: Path) -> None:
    paths = StorePaths(tmp_path)
    store_verdict(paths, DIGEST, [GOOD])
    store_verdict(paths, DIGEST, [BAD])
    verdict = read_verdict(paths, DIGEST)
    assert verdict is not None
    assert verdict.outcome == FAIL


def test_a_verdict_copied_under_another_digest_does_not_count(tmp_path: Path) -> None:
    paths = StorePaths(tmp_path)
    store_verdict(paths, DIGEST, [GOOD])
    (paths.verdicts / f"{DIGEST}.json").rename(paths.verdicts / f"{'e' * 64}.json")
    assert read_verdict(paths, "e" * 64) is None


@pytest.mark.parametrize("content", [b"", b"{", b"null", b"[]", b"{}", b"\xff", b'{"checks": [1]}'])
def test_a_damaged_verdict_is_none(tmp_path: Path, content: bytes) -> None:
    paths = StorePaths(tmp_path)
    store_verdict(paths, DIGEST, [GOOD])
    (paths.verdicts / f"{DIGEST}.json").write_bytes(content)
    assert read_verdict(paths, DIGEST) is None


def night(store: Store, number: int) -> str:
    return store.publish(renumber([memory(f"The boat left in night {number}.")]))


def answer(store: Store) -> str:
    return Recaller.open(store.root).recall("boat").memories[0].content


def flip(store: Store, snapshot_id: str, name: str = layout.ROWS_FILE) -> None:
    path = store.snapshot(snapshot_id) / name
    content = path.read_bytes()
    path.chmod(0o644)
    path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    store = new_store(tmp_path_factory.mktemp("published") / "house")
    return store.root, [night(store, n) for n in (1, 2, 3)]


@pytest.fixture
def three(home: Path, published: tuple[Path, list[str]]) -> tuple[Store, list[str]]:
    root, names = published
    return Store(StorePaths(shutil.copytree(root, home / "house"))), list(names)


def test_retention_keeps_the_newest(empty_store: Store) -> None:
    store = new_store(empty_store.root.with_name("kept"), keep=3)
    names = [night(store, n) for n in range(5)]
    assert list_snapshots(store.paths) == names[2:]


def test_retention_never_removes_the_serving_snapshot_or_the_one_before(
    three: tuple[Store, list[str]],
) -> None:
    store, names = three
    assert apply_retention(store.paths, 1) == (names[0],)
    assert list_snapshots(store.paths) == names[1:]


def test_after_a_rollback_retention_keeps_what_serves_and_what_served(
    three: tuple[Store, list[str]],
) -> None:
    store, names = three
    rollback(store.paths, names[0])
    assert apply_retention(store.paths, 2) == (names[1],)
    assert list_snapshots(store.paths) == [names[0], names[2]]


def test_retention_leaves_everything_while_there_is_room(three: tuple[Store, list[str]]) -> None:
    store, names = three
    assert apply_retention(store.paths, 3) == ()
    assert list_snapshots(store.paths) == names


def test_a_removal_that_was_killed_is_finished_by_the_next(three: tuple[Store, list[str]]) -> None:
    store, names = three
    doomed = store.root / f".removing-{names[0]}"
    store.snapshot(names[0]).rename(doomed)
    assert list_snapshots(store.paths) == names[1:]
    apply_retention(store.paths, 7)
    assert not doomed.exists()


def test_dropping_older_ones_leaves_only_what_serves(three: tuple[Store, list[str]]) -> None:
    store, names = three
    assert drop_older_snapshots(store.paths) == (names[0], names[1])
    assert list_snapshots(store.paths) == [names[2]]
    assert answer(store).endswith("night 3.")


def test_a_pinned_reader_keeps_answering_after_its_snapshot_was_removed(empty_store: Store) -> None:
    store = new_store(empty_store.root.with_name("pinned"), keep=2)
    first = night(store, 1)
    pinned = Recaller.open(store.root)
    for number in (2, 3, 4):
        night(store, number)
    assert first not in list_snapshots(store.paths)
    result = pinned.recall("boat")
    assert result.snapshot_id == first
    assert result.memories[0].content.endswith("night 1.")
    assert [w.code for w in result.warnings] == ["dense_unavailable"]


def test_rollback_goes_to_the_one_before_and_then_further(three: tuple[Store, list[str]]) -> None:
    store, names = three
    pointer = rollback(store.paths)
    assert (pointer.snapshot_id, pointer.previous_id, pointer.reason) == (
        names[1],
        names[2],
        "rollback",
    )
    assert read_pointer(store.paths) == pointer
    assert answer(store).endswith("night 2.")
    assert rollback(store.paths).snapshot_id == names[0]
    assert answer(store).endswith("night 1.")
    with pytest.raises(SnapshotMissingError, match="no snapshot older"):
        rollback(store.paths)
    assert answer(store).endswith("night 1.")


def test_rollback_to_a_named_one_may_go_forward(three: tuple[Store, list[str]]) -> None:
    store, names = three
    rollback(store.paths, names[0])
    assert rollback(store.paths, names[2]).snapshot_id == names[2]
    assert answer(store).endswith("night 3.")


def test_rollback_to_an_unknown_name_says_so(three: tuple[Store, list[str]]) -> None:
    store, names = three
    for name in ("20200101T000000000000-abc", "", "..", f"../snapshots/{names[0]}"):
        with pytest.raises(SnapshotMissingError, match="3 found"):
            rollback(store.paths, name)
    assert read_pointer(store.paths).snapshot_id == names[2]


@pytest.mark.parametrize("file", [layout.ROWS_FILE, layout.MANIFEST_FILE, layout.ARRAYS_FILE])
def test_rollback_to_a_damaged_snapshot_refuses(three: tuple[Store, list[str]], file: str) -> None:
    store, names = three
    before = store.paths.current.read_bytes()
    flip(store, names[1], file)
    with pytest.raises(SnapshotCorruptError):
        rollback(store.paths, names[1])
    assert store.paths.current.read_bytes() == before


def test_rollback_repairs_a_lost_pointer(three: tuple[Store, list[str]]) -> None:
    store, names = three
    store.paths.current.write_bytes(b"not json")
    assert rollback(store.paths).snapshot_id == names[2]
    assert read_pointer(store.paths).previous_id is None


def test_rollback_in_an_empty_store_says_so(empty_store: Store) -> None:
    with pytest.raises(SnapshotMissingError):
        rollback(empty_store.paths)
    assert not empty_store.paths.current.exists()


def test_the_serving_manifest_is_none_unless_something_intact_serves(
    three: tuple[Store, list[str]],
) -> None:
    store, names = three
    manifest = serving_manifest(store.paths)
    assert manifest is not None
    assert manifest.digest == read_pointer(store.paths).digest
    # The directory under the pointer's name was swapped for another intact snapshot.
    shutil.rmtree(store.snapshot(names[2]))
    shutil.copytree(store.snapshot(names[1]), store.snapshot(names[2]))
    assert serving_manifest(store.paths) is None
    shutil.rmtree(store.snapshot(names[2]))
    assert serving_manifest(store.paths) is None
    store.paths.current.unlink()
    assert serving_manifest(store.paths) is None


RRF = {"adopted": {"fusion": "rrf", "graph_weight": 0.0}, "reason": "because it measured better"}


@pytest.fixture
def pack(empty_store: Store) -> Path:
    return empty_store.candidate(household())


def test_a_pack_without_an_adopted_ranking_is_the_candidate(empty_store: Store, pack: Path) -> None:
    digest = read_manifest(pack).digest
    assert seal_candidate(empty_store.paths, digest, None) == pack
    assert SnapshotReader.open(pack).adopted == {}


def test_an_adopted_ranking_changes_the_digest_and_nothing_else(
    empty_store: Store, pack: Path
) -> None:
    before = read_manifest(pack)
    sealed = seal_candidate(empty_store.paths, before.digest, RRF)
    after = read_manifest(sealed)
    full_check(sealed, after)
    assert after.digest != before.digest
    assert pack_digest(after) == before.digest
    assert {n: e for n, e in after.files.items() if n != RANKING_FILE} == before.files
    assert SnapshotReader.open(sealed).adopted == RRF["adopted"]


def test_sealing_twice_gives_the_same_bytes(empty_store: Store, pack: Path) -> None:
    digest = read_manifest(pack).digest
    first = read_manifest(seal_candidate(empty_store.paths, digest, RRF)).digest
    assert read_manifest(seal_candidate(empty_store.paths, digest, RRF)).digest == first


def test_a_pack_is_found_inside_a_sealed_and_published_snapshot(
    empty_store: Store, pack: Path
) -> None:
    digest = read_manifest(pack).digest
    sealed = seal_candidate(empty_store.paths, digest, RRF)
    published = publish_candidate(empty_store.paths, empty_store.judge(sealed), 7)
    remove_tree(pack)
    found = find_pack(empty_store.paths, digest)
    assert found == empty_store.snapshot(published.snapshot_id)
    bare = seal_candidate(empty_store.paths, digest, None)
    assert read_manifest(bare).digest == digest
    assert RANKING_FILE not in read_manifest(bare).files


def test_a_damaged_pack_is_not_found(empty_store: Store, pack: Path) -> None:
    digest = read_manifest(pack).digest
    target = pack / ARRAYS_FILE
    target.write_bytes(target.read_bytes()[:-1] + b"\xff")
    assert find_pack(empty_store.paths, digest) is None
    with pytest.raises(StoreError, match="run the nightly job again"):
        seal_candidate(empty_store.paths, digest, RRF)


@pytest.mark.parametrize("adopted", [{"fusion": "median"}, {"colour": 1}, {"graph_weight": -1}, 7])
def test_a_ranking_that_no_profile_can_hold_is_a_damaged_snapshot(
    empty_store: Store, pack: Path, adopted: object
) -> None:
    digest = read_manifest(pack).digest
    ranking = {"adopted": adopted}
    sealed = seal_candidate(empty_store.paths, digest, ranking)  # type: ignore[arg-type]
    with pytest.raises(SnapshotCorruptError, match="cannot be opened"):
        SnapshotReader.open(sealed)


def test_the_served_profile_is_the_settings_with_what_was_adopted(
    empty_store: Store, pack: Path
) -> None:
    digest = read_manifest(pack).digest
    sealed = seal_candidate(empty_store.paths, digest, RRF)
    publish_candidate(empty_store.paths, empty_store.judge(sealed), 7)
    reader = Recaller.open(empty_store.root).reader
    settings = Settings(recall=RecallSettings(importance_prior=0.1))
    served = configured_profile(settings, reader.adopted)
    assert served == RetrievalProfile().replaced(
        fusion="rrf", graph_weight=0.0, importance_prior=0.1
    )


def test_recall_ranks_by_what_was_adopted(
    empty_store: Store, pack: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from noctuary.recall.api import recall

    digest = read_manifest(pack).digest
    sealed = seal_candidate(empty_store.paths, digest, RRF)
    publish_candidate(empty_store.paths, empty_store.judge(sealed), 7)
    result = recall("spare key", store=empty_store.root, dry_run=True)
    assert result.profile is not None
    assert (result.profile["fusion"], result.profile["graph_weight"]) == ("rrf", 0.0)


def test_an_unpublished_pack_is_linked_and_a_published_one_copied(
    empty_store: Store, pack: Path
) -> None:
    digest = read_manifest(pack).digest
    sealed = seal_candidate(empty_store.paths, digest, RRF)
    names = set(read_manifest(pack).files)
    assert all((sealed / name).samefile(pack / name) for name in names)
    published = publish_candidate(empty_store.paths, empty_store.judge(sealed), 7)
    remove_tree(pack)
    snapshot = empty_store.snapshot(published.snapshot_id)
    again = seal_candidate(empty_store.paths, digest, None)
    assert not any((again / name).samefile(snapshot / name) for name in names)
    full_check(again, read_manifest(again))


def test_where_nothing_can_be_linked_the_pack_is_copied(
    empty_store: Store, pack: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(source: Path, target: Path) -> None:
        raise OSError("no links here")

    monkeypatch.setattr("noctuary.snapshot.publish.os.link", refuse)
    sealed = seal_candidate(empty_store.paths, read_manifest(pack).digest, RRF)
    full_check(sealed, read_manifest(sealed))
    assert not (sealed / "rows.sqlite").samefile(pack / "rows.sqlite")


HOUR_NS = 3_600_000_000_000


def test_no_night_is_none(tmp_path: Path) -> None:
    assert last_night_hours(StorePaths(tmp_path)) is None


def test_a_night_that_just_went_through_is_now(tmp_path: Path) -> None:
    paths = StorePaths(tmp_path)
    record_night(paths)
    hours = last_night_hours(paths)
    assert hours is not None
    assert 0.0 <= hours < 0.1
    assert datetime.fromisoformat(paths.last_night.read_text().strip()).tzinfo is not None


@pytest.mark.parametrize(("ago", "expected"), [(50, 50.0), (0, 0.0), (-50, 0.0)])
def test_hours_are_counted_and_a_clock_set_back_is_zero(
    tmp_path: Path, ago: int, expected: float
) -> None:
    paths = StorePaths(tmp_path)
    record_night(paths)
    moment = time.time_ns() - ago * HOUR_NS
    os.utime(paths.last_night, ns=(moment, moment))
    assert last_night_hours(paths) == pytest.approx(expected, abs=0.1)
