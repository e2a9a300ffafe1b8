"""How many stores one process keeps open, and that it answers from all of them all the same."""

from __future__ import annotations

import gc
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from noctuary import recall
from noctuary.core.store import StorePaths
from noctuary.recall import api as serving
from tests.support.descriptors import open_files
from tests.support.store import Store, memory, new_store, renumber

PINNED = 3


@pytest.fixture
def stores(home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Store]]:
    """Five stores, of which a process may keep three open; the collector breaks no cycle here."""
    monkeypatch.setattr(serving, "STORES_PINNED", PINNED)
    first = new_store(home / "store0")
    first.publish(renumber([memory("The spare key lies on the shelf.")]))
    copies = [Store(StorePaths(home / f"store{n}"), None) for n in range(1, 5)]
    for copy in copies:
        shutil.copytree(first.root, copy.root)
    gc.disable()
    yield [first, *copies]
    gc.enable()


def held(stores: list[Store]) -> list[int]:
    """Return the stores of which some file is open."""
    names = open_files()
    return [n for n, s in enumerate(stores) if any(f.startswith(f"{s.root}/") for f in names)]


def ask(store: Store) -> None:
    assert [m.id for m in recall("spare key", store=str(store.root), dry_run=True).memories]


def test_a_process_keeps_the_stores_open_that_were_asked_last(stores: list[Store]) -> None:
    for store in stores:
        ask(store)
    assert held(stores) == [2, 3, 4]
    ask(stores[2])
    ask(stores[0])
    assert held(stores) == [0, 2, 4], "what was asked again stays before what was not"


def test_a_store_that_was_let_go_answers_as_before(stores: list[Store]) -> None:
    answers = [
        [(m.id, m.relevance) for m in recall("spare key", store=str(s.root), dry_run=True).memories]
        for s in [*stores, *stores]
    ]
    assert answers == [answers[0]] * 10
    assert answers[0]
