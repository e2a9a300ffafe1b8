from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noctuary.agents.client import directory_fault
from noctuary.agents.server import find_place

SUN_PATH_BYTES = 104
"""The shorter of Linux's 108 and macOS's 104, the closing NUL included."""


def test_two_spellings_of_a_store_have_one_place_and_two_stores_have_two(tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "store")
    assert find_place(tmp_path / "store") == find_place(tmp_path / "link")
    assert find_place(tmp_path / "store") == find_place(str(tmp_path / "x" / ".." / "store"))
    assert find_place(tmp_path / "store") != find_place(tmp_path / "other")


def test_the_user_s_runtime_directory_comes_first_then_a_temporary_one() -> None:
    uid = os.geteuid()
    assert find_place("/s", {"XDG_RUNTIME_DIR": "/run/me"}).directory == Path("/run/me/noctuary")
    assert find_place("/s", {"TMPDIR": "/var/tmp"}).directory == Path(f"/var/tmp/noctuary-{uid}")
    for ignored in ("", "relative/dir", "  "):
        place = find_place("/s", {"XDG_RUNTIME_DIR": ignored})
        assert place.directory == Path(f"/tmp/noctuary-{uid}")


@given(
    runtime=st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=200),
    temporary=st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=200),
    store=st.text("abc/é", max_size=300),
)
def test_the_socket_s_path_always_fits(runtime: str, temporary: str, store: str) -> None:
    environ = {"XDG_RUNTIME_DIR": f"/{runtime}", "TMPDIR": f"/{temporary}"}
    assert len(os.fsencode(find_place(f"/{store}", environ).socket)) < SUN_PATH_BYTES


def test_a_private_directory_of_one_s_own_has_no_fault(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir(mode=0o700)
    assert directory_fault(tmp_path / "mine") is None


@pytest.mark.parametrize("mode", [0o770, 0o707, 0o755, 0o701])
def test_a_directory_that_others_can_enter_is_refused(tmp_path: Path, mode: int) -> None:
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(mode)
    assert f"{mode:04o}" in str(directory_fault(tmp_path / "open"))


def test_a_link_or_a_file_is_no_directory(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir(mode=0o700)
    (tmp_path / "link").symlink_to(tmp_path / "mine")
    (tmp_path / "file").touch()
    assert "not a directory" in str(directory_fault(tmp_path / "link"))
    assert "not a directory" in str(directory_fault(tmp_path / "file"))
    with pytest.raises(FileNotFoundError):
        directory_fault(tmp_path / "nothing")


def test_somebody_else_s_directory_is_refused(tmp_path: Path) -> None:
    foreign = tmp_path / "foreign"
    foreign.mkdir(mode=0o700)
    if os.geteuid() == 0:
        os.chown(foreign, 65534, 65534)
    else:
        foreign = Path("/")
    assert "belongs to user" in str(directory_fault(foreign))
