from __future__ import annotations

import os
from pathlib import Path

import pytest

from noctuary.core import store as locate
from noctuary.core.errors import SnapshotMissingError, StoreError
from noctuary.core.store import (
    expand_user,
    find_home,
    find_store,
    list_stores,
    require_moved,
    store_for_source,
)


def published(home: Path, name: str, mtime_ns: int = 0) -> Path:
    store = home / name
    store.mkdir(parents=True)
    (store / "CURRENT").write_text("{}")
    os.utime(store / "CURRENT", ns=(mtime_ns, mtime_ns))
    return store


def test_home_is_the_variable_s_else_the_user_s_data_in_a_checkout_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    named = {"NOCTUARY_HOME": str(tmp_path / "h"), "XDG_DATA_HOME": str(tmp_path / "xdg")}
    assert find_home(named) == tmp_path / "h"
    assert find_home({"XDG_DATA_HOME": str(tmp_path / "xdg")}) == tmp_path / "xdg" / "noctuary"
    monkeypatch.setenv("HOME", str(tmp_path / "me"))
    assert find_home({}) == tmp_path / "me" / ".local" / "share" / "noctuary"
    monkeypatch.chdir(tmp_path)
    assert find_home({"NOCTUARY_HOME": " ~/stores "}) == tmp_path / "me" / "stores"
    assert find_home({"NOCTUARY_HOME": "here"}) == tmp_path / "here"


@pytest.mark.parametrize("left", ["a/work", "noctuary.toml"])
def test_what_a_checkout_still_holds_has_to_be_moved_first(
    left: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, xdg = tmp_path / "checkout" / "data", {"XDG_DATA_HOME": str(tmp_path / "xdg")}
    monkeypatch.setattr(locate, "_OLD_HOME", old)
    home = find_home(xdg)
    require_moved(home, xdg)
    (old / left).mkdir(parents=True)
    (old / "sample").mkdir()  # the checkout's own
    moved = old / Path(left).parts[0]
    for call in (
        lambda: require_moved(home, xdg),
        lambda: find_store(None, home=home, environ=xdg),
        lambda: find_store("a", home=home, environ=xdg),
    ):
        with pytest.raises(StoreError, match=f"mv {moved} {home}`"):
            call()
    require_moved(old, {"NOCTUARY_HOME": str(old)})
    require_moved(tmp_path / "chosen", xdg)
    store = published(home, "b")
    assert find_store(None, home=home, environ=xdg) == (store, False)


def test_a_tilde_that_leads_nowhere_is_typed(tmp_path: Path) -> None:
    for call in (
        lambda: find_home({"NOCTUARY_HOME": "~nobody-of-that-name"}),
        lambda: find_store("~nobody-of-that-name/x", home=tmp_path, environ={}),
        lambda: store_for_source(tmp_path, Path("~nobody-of-that-name/memory.db")),
        lambda: expand_user("~nobody-of-that-name"),
    ):
        with pytest.raises(StoreError, match="in full"):
            call()


def test_a_source_always_gets_the_same_store_and_another_one_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / "claude" / "memory.db"
    source.parent.mkdir()
    source.touch()
    store = store_for_source(tmp_path / "home", source)
    assert store.parent == tmp_path / "home"
    assert store.name.startswith("claude-memory-")
    monkeypatch.chdir(source.parent)
    assert store_for_source(tmp_path / "home", Path("memory.db")) == store
    others = [store_for_source(tmp_path, tmp_path / x / "x" / "memory.db") for x in "ab"]
    assert others[0] != others[1]
    assert {other.name.rpartition("-")[0] for other in others} == {"x-memory"}
    folder = tmp_path / "lo co mo!"
    folder.mkdir()
    assert store_for_source(tmp_path, folder).name.startswith("lo-co-mo-")
    assert store_for_source(tmp_path, Path("/")).name.startswith("store-")
    (tmp_path / "link.db").symlink_to(source)
    assert store_for_source(tmp_path / "home", tmp_path / "link.db") == store


def test_stores_are_those_that_published(tmp_path: Path) -> None:
    assert list_stores(tmp_path / "nothing") == []
    published(tmp_path, "b")
    published(tmp_path, "a")
    (tmp_path / "half" / "work").mkdir(parents=True)
    (tmp_path / "CURRENT").touch()
    assert list_stores(tmp_path) == [tmp_path / "a", tmp_path / "b"]


def test_without_a_name_the_last_published_is_taken_and_of_several_it_is_a_guess(
    tmp_path: Path,
) -> None:
    with pytest.raises(SnapshotMissingError, match="noctuary nightly"):
        find_store(None, home=tmp_path, environ={})
    steps = [("a", 10, "a"), ("b", 30, "b"), ("c", 20, "b"), ("d", 30, "d")]  # equal times: by name
    for name, stamp, found in steps:
        published(tmp_path, name, stamp)
        assert find_store(None, home=tmp_path, environ={}) == (tmp_path / found, name != "a")


def test_the_argument_wins_over_the_variable_over_the_guess(tmp_path: Path) -> None:
    for name, stamp in (("a", 1), ("b", 2), ("c", 3)):
        published(tmp_path, name, stamp)
    variable = {"NOCTUARY_STORE": "b"}
    assert find_store(None, home=tmp_path, environ=variable) == (tmp_path / "b", False)
    assert find_store("a", home=tmp_path, environ=variable) == (tmp_path / "a", False)
    assert find_store(None, home=tmp_path, environ={"NOCTUARY_STORE": " "}) == (
        tmp_path / "c",
        True,
    )


def test_a_store_is_named_by_path_name_or_source(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    store = published(home, "a")
    source = tmp_path / "memory.db"
    source.touch()
    for named in (store, str(store), "a"):
        assert find_store(named, home=home, environ={}) == (store, False)
    assert find_store(source, home=home, environ={})[0] == store_for_source(home, source)
    monkeypatch.chdir(home)
    assert find_store("a", home=tmp_path / "elsewhere", environ={})[0] == store


def test_a_folder_of_a_project_does_not_take_the_place_of_a_store_of_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = published(tmp_path / "home", "a")
    published(tmp_path / "project", "a")
    monkeypatch.chdir(tmp_path / "project")
    assert find_store("a", home=tmp_path / "home", environ={})[0] == store
    assert find_store(None, home=tmp_path / "home", environ={"NOCTUARY_STORE": "a"})[0] == store


def test_what_has_only_begun_or_is_not_there_is_looked_for_where_it_would_be(
    tmp_path: Path,
) -> None:
    (tmp_path / "begun" / "work").mkdir(parents=True)
    for name in ("begun", "a", tmp_path / "some" / "where"):
        assert find_store(name, home=tmp_path, environ={}) == (tmp_path / name, False)


def test_a_store_is_found_by_how_its_name_begins_if_no_other_begins_so(tmp_path: Path) -> None:
    palace = published(tmp_path, "palace-7a5718")
    notes = published(tmp_path, "notes-0a1b2c")
    published(tmp_path, "notes-work-3d4e5f")
    assert find_store("palace", home=tmp_path, environ={}) == (palace, False)
    assert find_store(None, home=tmp_path, environ={"NOCTUARY_STORE": "pal"}) == (palace, False)
    with pytest.raises(StoreError, match="notes-0a1b2c, notes-work-3d4e5f"):
        find_store("notes", home=tmp_path, environ={})
    assert find_store("notes-0", home=tmp_path, environ={}) == (notes, False)
    assert find_store("alace", home=tmp_path, environ={}) == (tmp_path / "alace", False)
    published(tmp_path, "notes")
    assert find_store("notes", home=tmp_path, environ={}) == (tmp_path / "notes", False)
