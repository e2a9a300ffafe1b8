"""Encoders of several stores of one home take their place on disk once, and no store notices."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from noctuary.embed.documents import share_files
from noctuary.embed.lean import LeanEncoder
from tests.support.lean import write_encoder


def inodes(directory: Path) -> dict[str, int]:
    return {path.name: path.stat().st_ino for path in directory.iterdir()}


@pytest.fixture
def stores(tmp_path: Path) -> list[Path]:
    """The encoders of three stores, made apart, one after the other."""
    made = [write_encoder(tmp_path / name / "encoders") for name in ("one", "two", "three")]
    digest = made[0].fingerprint.digest
    return [tmp_path / name / "encoders" / digest for name in ("one", "two", "three")]


def test_equal_files_become_one_and_stay_so(stores: list[Path], tmp_path: Path) -> None:
    contents = {path.name: path.read_bytes() for path in stores[0].iterdir()}
    for directory in (*reversed(stores), *stores):
        share_files(directory, tmp_path)
    first = inodes(stores[0])
    assert len(first) == 3
    for directory in stores:
        assert inodes(directory) == first
        assert {path.name: path.read_bytes() for path in directory.iterdir()} == contents
        LeanEncoder.open(directory, verify=True)
    for directory in (*stores, *reversed(stores)):
        share_files(directory, tmp_path)
    assert inodes(stores[2]) == first, "a night that changes nothing links nothing"


def test_a_store_is_mended_and_removed_without_the_others(
    stores: list[Path], tmp_path: Path
) -> None:
    for directory in stores:
        share_files(directory, tmp_path)
    weights = stores[0] / "weights.bin"
    whole = weights.read_bytes()
    weights.write_bytes(b"x" * len(whole))  # in its place: damage, which reaches all that share it
    write_encoder(tmp_path / "fresh")
    shutil.rmtree(stores[1])
    shutil.copytree(tmp_path / "fresh" / stores[1].name, stores[1])
    share_files(stores[1], tmp_path)
    assert (stores[1] / "weights.bin").read_bytes() == whole, "nothing links to what differs"
    shutil.rmtree(stores[0].parents[1])
    LeanEncoder.open(stores[1], verify=True)


def test_what_is_not_there_or_alone_is_left(tmp_path: Path) -> None:
    share_files(tmp_path / "one" / "encoders" / "none", tmp_path)
    (tmp_path / "one" / "encoders" / "a").mkdir(parents=True)
    (tmp_path / "one" / "encoders" / "a" / "weights.bin").write_bytes(b"w")
    before = inodes(tmp_path / "one" / "encoders" / "a")
    share_files(tmp_path / "one" / "encoders" / "a", tmp_path)
    assert inodes(tmp_path / "one" / "encoders" / "a") == before
