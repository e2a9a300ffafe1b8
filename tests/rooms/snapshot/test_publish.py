"""Sealing: what the evaluation adopted becomes part of the candidate, and of its digest."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
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
from noctuary.recall.api import recall
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


def unjudged(store: Store) -> str:
    return read_manifest(store.candidate(household())).digest


def publish_digest(store: Store, digest: str) -> publish.Publication:
    return publish_candidate(store.paths, digest, store.keep)


def failed(store: Store) -> str:
    digest = unjudged(store)
    store_verdict(store.paths, digest, [PASSED, FAILED])
    return digest


def another_was_judged(store: Store) -> str:
    store.judge(store.candidate(household()))
    return read_manifest(store.candidate(renumber([memory("Only this.")]))).digest


def another_in_its_place(store: Store) -> str:
    good = store.candidate(household())
    digest = store.judge(good)
    remove_tree(good)
    store.candidate(renumber([memory("Swapped in.")])).rename(good)
    return digest


def changed_since(store: Store, name: str) -> str:
    candidate = store.candidate(household())
    digest = store.judge(candidate)
    flip(candidate / name)
    return digest


def gone(store: Store) -> str:
    candidate = store.candidate(household())
    digest = store.judge(candidate)
    remove_tree(candidate)
    return digest


@pytest.mark.parametrize(
    ("prepare", "error", "said"),
    [
        (unjudged, PublishRefusedError, "no verdict"),
        (failed, PublishRefusedError, "no_sensitive_row_is_anywhere.*yesterday"),
        (another_was_judged, PublishRefusedError, "no verdict"),
        (another_in_its_place, SnapshotCorruptError, "the verdict is for"),
        (partial(changed_since, name=layout.ROWS_FILE), SnapshotCorruptError, layout.ROWS_FILE),
        (partial(changed_since, name=layout.ARRAYS_FILE), SnapshotCorruptError, layout.ARRAYS_FILE),
        (gone, StoreError, "no candidate"),
    ],
)
def test_what_did_not_pass_as_it_is_now_is_refused_and_yesterdays_snapshot_serves(
    empty_store: Store, prepare: Callable[[Store], str], error: type[Exception], said: str
) -> None:
    yesterday = empty_store.publish(renumber([memory("Yesterday.")]))
    before = empty_store.paths.current.read_bytes()
    digest = prepare(empty_store)
    with pytest.raises(error, match=f"(?s){said}"):
        publish_digest(empty_store, digest)
    assert list_snapshots(empty_store.paths) == [yesterday]
    assert empty_store.paths.current.read_bytes() == before
    empty_store.paths.current.unlink()
    with pytest.raises(error):
        publish_digest(empty_store, digest)
    assert not empty_store.paths.current.exists()


def test_publish_moves_the_candidate_and_points_at_it(empty_store: Store) -> None:
    candidate = empty_store.candidate(household())
    digest = empty_store.judge(candidate)
    assert find_by_digest(empty_store.paths, digest) == candidate
    publication = publish_digest(empty_store, digest)
    assert publication.published
    assert publication.removed == ()
    assert publication.snapshot_id.endswith(f"-{digest[:12]}")
    assert not candidate.exists()
    directory = empty_store.snapshot(publication.snapshot_id)
    assert find_by_digest(empty_store.paths, digest) == directory
    assert find_by_digest(empty_store.paths, "0" * 64) is None
    assert {S_IMODE(p.stat().st_mode) for p in directory.iterdir()} == {0o400}
    pointer = read_pointer(empty_store.paths)
    assert pointer == (publication.snapshot_id, digest, pointer.published_at, None, "publish")
    published_at = datetime.fromisoformat(pointer.published_at)
    assert timedelta(0) <= datetime.now(UTC) - published_at < timedelta(minutes=5)
    # A foreign directory does not stop the next one.
    (empty_store.paths.snapshots / "lost+found").mkdir()
    empty_store.publish(renumber([memory("Only this.")]))
    assert read_pointer(empty_store.paths).previous_id == publication.snapshot_id


def test_publishing_what_serves_changes_nothing(plain_store: Store) -> None:
    before, serving = plain_store.paths.current.read_bytes(), read_pointer(plain_store.paths)
    again = publish_digest(plain_store, plain_store.judge(plain_store.candidate(household())))
    assert (again.published, again.snapshot_id) == (False, serving.snapshot_id)
    assert plain_store.paths.current.read_bytes() == before
    assert list_snapshots(plain_store.paths) == [serving.snapshot_id]


@pytest.mark.parametrize("built_again", [False, True])
def test_a_night_killed_before_the_swap_is_completed(empty_store: Store, built_again: bool) -> None:
    digest = empty_store.judge(empty_store.candidate(household()))
    installed = publish._install(empty_store.paths, digest)  # pyright: ignore[reportPrivateUsage]
    assert not empty_store.paths.current.exists()
    if built_again:
        empty_store.candidate(household())
    assert publish_digest(empty_store, digest).snapshot_id == installed
    assert list_snapshots(empty_store.paths) == [installed]
    assert Recaller.open(empty_store.root).recall("spare key").memories[0].id == 101


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
    if damage == "flipped":
        flip(path)
    else:
        content = path.read_bytes()
        path.unlink()
        if damage == "truncated":
            path.write_bytes(content[:-1])
    healed = plain_store.publish(household())
    assert healed > broken
    assert read_pointer(plain_store.paths).snapshot_id == healed
    full_check(plain_store.snapshot(healed), read_manifest(plain_store.snapshot(healed)))


def test_a_clock_set_back_names_later(plain_store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_the_last_verdict_is_read_back_under_its_digest_only(tmp_path: Path) -> None:
    paths, other = StorePaths(tmp_path), "e" * 64
    store_verdict(paths, DIGEST, [GOOD])
    stored = store_verdict(paths, DIGEST, [GOOD, BAD])
    assert read_verdict(paths, DIGEST) == stored
    assert stored.outcome == FAIL
    assert read_verdict(paths, other) is None
    (paths.verdicts / f"{DIGEST}.json").rename(paths.verdicts / f"{other}.json")
    assert read_verdict(paths, other) is None, "a copy under another name does not count"


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


def flip(path: Path) -> None:
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


@pytest.mark.parametrize(
    ("serves", "keep", "removed"),
    [(2, 1, [0]), (0, 2, [1]), (2, 3, [])],
    ids=["what-serves-and-the-one-before-stay", "so-does-what-served-before-a-rollback", "room"],
)
def test_retention_keeps_the_newest_and_what_serves_or_served(
    three: tuple[Store, list[str]], serves: int, keep: int, removed: list[int]
) -> None:
    store, names = three
    if serves != 2:
        rollback(store.paths, names[serves])
    assert apply_retention(store.paths, keep) == tuple(names[n] for n in removed)
    assert list_snapshots(store.paths) == [names[n] for n in range(3) if n not in removed]


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
    later = [night(store, number) for number in (2, 3, 4)]
    assert list_snapshots(store.paths) == later[1:]
    result = pinned.recall("boat")
    assert result.snapshot_id == first
    assert result.memories[0].content.endswith("night 1.")
    assert [w.code for w in result.warnings] == ["dense_unavailable"]


def test_rollback_goes_back_further_and_by_name_forward(three: tuple[Store, list[str]]) -> None:
    store, names = three
    pointer = rollback(store.paths)
    assert (pointer.snapshot_id, pointer.previous_id) == (names[1], names[2])
    assert pointer.reason == "rollback"
    assert read_pointer(store.paths) == pointer
    assert answer(store).endswith("night 2.")
    assert rollback(store.paths).snapshot_id == names[0]
    with pytest.raises(SnapshotMissingError, match="no snapshot older"):
        rollback(store.paths)
    assert answer(store).endswith("night 1.")
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
    flip(store.snapshot(names[1]) / file)
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


def test_the_serving_manifest_is_of_something_intact(three: tuple[Store, list[str]]) -> None:
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


@pytest.fixture
def digest(pack: Path) -> str:
    return read_manifest(pack).digest


def seal_and_publish(store: Store, digest: str) -> Path:
    sealed = seal_candidate(store.paths, digest, RRF)
    return store.snapshot(publish_digest(store, store.judge(sealed)).snapshot_id)


def test_an_adopted_ranking_changes_the_digest(empty_store: Store, pack: Path, digest: str) -> None:
    before = read_manifest(pack)
    assert seal_candidate(empty_store.paths, digest, None) == pack
    assert SnapshotReader.open(pack).adopted == {}
    sealed = seal_candidate(empty_store.paths, digest, RRF)
    after = read_manifest(sealed)
    full_check(sealed, after)
    assert after.digest != digest == pack_digest(after)
    assert {n: e for n, e in after.files.items() if n != RANKING_FILE} == before.files
    assert all((sealed / name).samefile(pack / name) for name in before.files)
    assert SnapshotReader.open(sealed).adopted == RRF["adopted"]
    again = seal_candidate(empty_store.paths, digest, RRF)
    assert read_manifest(again).digest == after.digest


def test_a_pack_is_found_inside_a_sealed_and_published_snapshot_and_copied(
    empty_store: Store, pack: Path, digest: str
) -> None:
    names = set(read_manifest(pack).files)
    snapshot = seal_and_publish(empty_store, digest)
    remove_tree(pack)
    assert find_pack(empty_store.paths, digest) == snapshot
    bare = seal_candidate(empty_store.paths, digest, None)
    assert (read_manifest(bare).digest, set(read_manifest(bare).files)) == (digest, names)
    assert not any((bare / name).samefile(snapshot / name) for name in names)
    full_check(bare, read_manifest(bare))


def test_a_damaged_pack_is_not_found(empty_store: Store, pack: Path, digest: str) -> None:
    flip(pack / ARRAYS_FILE)
    assert find_pack(empty_store.paths, digest) is None
    with pytest.raises(StoreError, match="run the nightly job again"):
        seal_candidate(empty_store.paths, digest, RRF)


@pytest.mark.parametrize("adopted", [{"fusion": "median"}, {"colour": 1}, {"graph_weight": -1}, 7])
def test_a_ranking_that_no_profile_can_hold_is_a_damaged_snapshot(
    empty_store: Store, digest: str, adopted: object
) -> None:
    sealed = seal_candidate(empty_store.paths, digest, {"adopted": adopted})  # type: ignore[arg-type]
    with pytest.raises(SnapshotCorruptError, match="cannot be opened"):
        SnapshotReader.open(sealed)


def test_recall_ranks_by_settings_and_what_was_adopted(empty_store: Store, digest: str) -> None:
    seal_and_publish(empty_store, digest)
    adopted = Recaller.open(empty_store.root).reader.adopted
    settings = Settings(recall=RecallSettings(importance_prior=0.1))
    expected = {"fusion": "rrf", "graph_weight": 0.0, "importance_prior": 0.1}
    assert configured_profile(settings, adopted) == RetrievalProfile().replaced(**expected)
    result = recall("spare key", store=empty_store.root, dry_run=True)
    assert result.profile is not None
    assert (result.profile["fusion"], result.profile["graph_weight"]) == ("rrf", 0.0)


def test_where_nothing_can_be_linked_the_pack_is_copied(
    empty_store: Store, pack: Path, digest: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(source: Path, target: Path) -> None:
        raise OSError("no links here")

    monkeypatch.setattr("noctuary.snapshot.publish.os.link", refuse)
    sealed = seal_candidate(empty_store.paths, digest, RRF)
    full_check(sealed, read_manifest(sealed))
    assert not (sealed / layout.ROWS_FILE).samefile(pack / layout.ROWS_FILE)


HOUR_NS = 3_600_000_000_000


@pytest.mark.parametrize(("ago", "expected"), [(None, None), (50, 50.0), (0, 0.0), (-50, 0.0)])
def test_hours_since_a_night_are_counted_and_a_clock_set_back_is_zero(
    tmp_path: Path, ago: int | None, expected: float | None
) -> None:
    paths = StorePaths(tmp_path)
    if ago is not None:
        record_night(paths)
        assert datetime.fromisoformat(paths.last_night.read_text().strip()).tzinfo is not None
        moment = time.time_ns() - ago * HOUR_NS
        os.utime(paths.last_night, ns=(moment, moment))
    assert last_night_hours(paths) == pytest.approx(expected, abs=0.1)
