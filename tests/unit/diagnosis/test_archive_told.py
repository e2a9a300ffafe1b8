"""What status, doctor and snapshots say of the archive and of another version's snapshot."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from noctuary.cli.main import main
from noctuary.cli.store import describe_snapshots, examine, read_status
from noctuary.core import store as layout
from noctuary.core.errors import SnapshotOutdatedError
from noctuary.core.manifest import read_manifest
from noctuary.recall.api import recall
from noctuary.recall.engine import Recaller
from tests.support.archive_file import write_archive
from tests.support.store import Store


def test_status_counts_what_is_archived_now(plain_store: Store) -> None:
    reader = Recaller.open(plain_store.root).reader
    assert read_status(plain_store.paths)["archived"] == 0
    path = plain_store.paths.archive
    write_archive(path, reader, {"p1": {"101": "108", "103": "104"}}, {"p1": [(1, None)]})
    assert read_status(plain_store.paths)["archived"] == 2
    said = CliRunner().invoke(main, ["status", "--store", str(plain_store.root)]).output
    assert "archived   2 of them, out of default recall" in said
    write_archive(path, reader, {"p1": {"101": "108"}}, {"p1": [(1, 2)]})
    assert read_status(plain_store.paths)["archived"] == 0


def test_an_unreadable_archive_is_told(plain_store: Store) -> None:
    plain_store.paths.archive.write_bytes(b"no database")
    assert read_status(plain_store.paths)["archived"] is None
    (finding,) = (f for f in examine(plain_store.paths) if f.name == "archive")
    assert finding.level == "warn"
    assert finding.remedy
    said = CliRunner().invoke(main, ["status", "--store", str(plain_store.root)]).output
    assert "archived   unknown" in said


def test_doctor_counts_plans(plain_store: Store) -> None:
    reader = Recaller.open(plain_store.root).reader
    plans = {"p1": {"101": "108"}, "p2": {"103": "104"}}
    write_archive(plain_store.paths.archive, reader, plans, {"p1": [(1, None)], "p2": [(1, None)]})
    (finding,) = (f for f in examine(plain_store.paths) if f.name == "archive")
    assert finding.message == "2 memories are archived by 2 plan(s)"


@pytest.mark.parametrize(("found", "who"), [(2, "an older noctuary"), (99, "a newer noctuary")])
def test_another_versions_snapshot_is_outdated_and_not_damaged(
    plain_store: Store, found: int, who: str
) -> None:
    snapshot_id = Recaller.open(plain_store.root).snapshot_id
    path = plain_store.snapshot(snapshot_id) / layout.MANIFEST_FILE
    manifest = json.loads(path.read_text(encoding="utf-8"))
    path.chmod(0o600)
    path.write_text(json.dumps({**manifest, "format_version": found}), encoding="utf-8")
    with pytest.raises(SnapshotOutdatedError, match=who):
        read_manifest(path.parent)
    (row,) = describe_snapshots(plain_store.paths)
    assert (row["intact"], row["outdated"]) == (False, True)
    said = CliRunner().invoke(main, ["snapshots", "--store", str(plain_store.root)]).output
    assert "DAMAGED" not in said
    assert "another version of noctuary" in said
    (warning,) = recall("key", store=str(plain_store.root)).warnings
    assert warning.code == "store_unreadable"
    assert who in warning.message
    assert "run the night" in warning.message
