from __future__ import annotations

import os
from pathlib import Path

import pytest

from noctuary.core.store import StorePaths
from noctuary.recall.profile import MAX_FILE_BYTES, read_store_profiles


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return StorePaths(tmp_path).profiles


def test_a_store_without_the_file_says_nothing(file: Path) -> None:
    assert file.name == "profiles.toml"
    assert read_store_profiles(file) == ({}, ())
    assert read_store_profiles(file / "x\0y")[0] == {}


def test_tables_by_name(file: Path) -> None:
    file.write_text("[default]\ndepth = 3\n[mine]\ninherits = 'synapse'\nmmr_lambda = 1\n")
    tables, warnings = read_store_profiles(file)
    assert tables == {"default": {"depth": 3}, "mine": {"inherits": "synapse", "mmr_lambda": 1}}
    assert warnings == ()


@pytest.mark.parametrize(
    "content", [b"[default", b"\xff\xfe", b"\0", b"[a]\n[a]", b"a = " + b"[" * 5000, b"x" * 100]
)
def test_a_damaged_file_is_a_warning(file: Path, content: bytes) -> None:
    file.write_bytes(content)
    tables, (warning,) = read_store_profiles(file)
    assert tables == {}
    assert warning.code == "bad_profile"
    assert str(file) in warning.message


def test_what_is_no_table_is_left_out(file: Path) -> None:
    file.write_text("depth = 3\nnames = [1]\n[mine]\ndepth = 4\n")
    tables, warnings = read_store_profiles(file)
    assert tables == {"mine": {"depth": 4}}
    assert [w.message.split()[0] for w in warnings] == ["depth", "names"]
    assert {w.code for w in warnings} == {"bad_profile"}


def test_a_file_that_is_none_is_not_read(file: Path) -> None:
    os.mkfifo(file)  # opening it would wait for a writer
    assert "no regular file" in read_store_profiles(file).warnings[0].message
    file.unlink()
    file.mkdir()
    assert "no regular file" in read_store_profiles(file).warnings[0].message


def test_a_file_that_is_too_large_is_not_read(file: Path) -> None:
    file.write_bytes(b"#" * (MAX_FILE_BYTES + 1))
    assert "bytes" in read_store_profiles(file).warnings[0].message


def test_a_changed_file_is_read_again_and_an_unchanged_one_is_not(file: Path) -> None:
    file.write_text("[a]\ndepth = 3\n")
    first = read_store_profiles(file)
    assert read_store_profiles(file) is first
    replacement = file.with_name("new")
    replacement.write_text("[a]\ndepth = 4\n")
    replacement.replace(file)
    assert read_store_profiles(file).tables == {"a": {"depth": 4}}
    file.unlink()
    assert read_store_profiles(file).tables == {}
