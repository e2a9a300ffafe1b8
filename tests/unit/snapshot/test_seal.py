"""Sealing: what the evaluation adopted becomes part of the candidate, and of its digest."""

from __future__ import annotations

from pathlib import Path

import pytest

from noctuary.core.errors import SnapshotCorruptError, StoreError
from noctuary.core.files import remove_tree
from noctuary.core.manifest import full_check, pack_digest, read_manifest
from noctuary.core.settings import RecallSettings, Settings
from noctuary.core.store import ARRAYS_FILE, RANKING_FILE
from noctuary.recall.engine import Recaller
from noctuary.recall.profile import RetrievalProfile, configured_profile
from noctuary.recall.reader import SnapshotReader
from noctuary.snapshot.publish import find_pack, publish_candidate, seal_candidate
from tests.support.store import Store, household

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
