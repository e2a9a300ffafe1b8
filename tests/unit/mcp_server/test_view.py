from __future__ import annotations

import gc
import os
from pathlib import Path

import pytest

from noctuary.agents.mcp_view import AskedWronglyError, View, read_state, recall_in_view
from noctuary.core import store as layout
from noctuary.core.errors import SnapshotCorruptError, SnapshotMissingError, StoreError
from tests.support.descriptors import open_files
from tests.support.store import Store, household, memory, new_store, renumber


def test_the_first_store_that_is_found_stays_the_store(home: Path, plain_store: Store) -> None:
    view = View()
    assert view.store() == plain_store.root
    other = new_store(home / "newer")
    other.publish(household())
    assert View().store() == other.root, "which published last"
    assert view.store() == plain_store.root


def test_a_guess_is_said_with_every_answer(home: Path, plain_store: Store) -> None:
    new_store(home / "newer").publish(household())
    view = View()
    assert [w.code for w in read_state(view).warnings] == ["store_guessed"]
    answer, _ = recall_in_view(view, "key")
    assert [w.code for w in answer.warnings if w.code == "store_guessed"] == ["store_guessed"]
    assert [w.code for w in read_state(View("newer")).warnings] == []


def test_a_store_that_comes_later_is_found_then(home: Path) -> None:
    view = View()
    with pytest.raises(SnapshotMissingError, match="noctuary nightly"):
        view.store()
    assert read_state(view).warnings[0].code == "no_snapshot"
    answer, _ = recall_in_view(view, "key")
    assert (answer.memories, [w.code for w in answer.warnings]) == ([], ["no_snapshot"])
    new_store(home / "late").publish(household())
    assert read_state(view).counts["memories"] == 12, "two of the fourteen belong to users"
    answer, _ = recall_in_view(view, "key")
    assert answer.memories


def test_a_new_snapshot_is_answered_from_and_the_old_one_s_files_are_closed(
    plain_store: Store,
) -> None:
    view = View(plain_store.root)
    with view.open() as seen:
        first = seen.recaller.snapshot_id
    del seen
    folder = str(plain_store.snapshot(first))
    assert any(name.startswith(folder) for name in open_files())
    second = plain_store.publish(renumber([memory("A new key.")]))
    gc.disable()
    try:
        with view.open() as seen:
            assert seen.recaller.snapshot_id == second
            assert seen.recaller.reader.count == 1
        assert [name for name in open_files() if name.startswith(folder)] == []
    finally:
        gc.enable()


def test_what_was_opened_stays_what_it_is_while_another_is_published(plain_store: Store) -> None:
    view = View(plain_store.root)
    with view.open() as seen:
        plain_store.publish(renumber([memory("A new key.")]))
        position = seen.find("101")
        assert "spare key" in seen.recaller.reader.describe([position])[position]["content"]


def test_damage_is_said_as_what_it_is(plain_store: Store) -> None:
    view = View(plain_store.root)
    said = r"KeyError in .*: run `noctuary doctor`"
    with pytest.raises(SnapshotCorruptError, match=said), view.open():
        raise KeyError("somewhere inside")


def test_an_unreadable_snapshot_is_a_warning_or_a_sentence(plain_store: Store) -> None:
    view = View(plain_store.root)
    (snapshot,) = plain_store.paths.snapshots.iterdir()
    (snapshot / layout.ROWS_FILE).write_bytes(b"")
    with pytest.raises(StoreError), view.open():
        pass
    assert [w.code for w in read_state(view).warnings] == ["no_snapshot"]
    answer, _ = recall_in_view(view, "key", room="hall")
    assert [w.code for w in answer.warnings] == ["no_snapshot"]


@pytest.mark.parametrize(
    ("own", "asked", "result"),
    [(None, None, None), (None, "home", "home"), ("home", None, "home"), ("home", "home", "home")],
)
def test_a_call_may_narrow_and_never_widen(
    own: str | None, asked: str | None, result: str | None
) -> None:
    assert View(wing=own).narrowed_to(asked) == result


@pytest.mark.parametrize("asked", ["work", "", "Home"])
def test_another_wing_is_outside(asked: str) -> None:
    with pytest.raises(AskedWronglyError, match="leave wing out"):
        View(wing="home").narrowed_to(asked)


def test_state_names_the_night_and_the_encoder(dense_store: Store) -> None:
    found = read_state(View(dense_store.root, user="ana"))
    assert found.encoder is not None
    assert found.last_night_hours is not None
    assert found.last_night_hours < 1
    assert found.user == "ana"
    assert found.warnings == []
    os.utime(dense_store.paths.last_night, (1, 1))
    assert [w.code for w in read_state(View(dense_store.root)).warnings] == ["stale_snapshot"]
