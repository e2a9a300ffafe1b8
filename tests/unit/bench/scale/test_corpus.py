"""Synthetic stores: equal for equal seeds, of the sets' lengths, with names that grow."""

from __future__ import annotations

import gzip
import json
import sqlite3
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from bench.datasets import find_shared
from bench.scale.corpus import Chain, iter_rows, read_chain, write_store


@pytest.fixture(scope="module")
def chains(tmp_path_factory: pytest.TempPathFactory) -> list[Chain]:
    found: list[Chain] = []
    for name in ("one", "two"):
        folder = tmp_path_factory.mktemp(name)
        lines = [f"{name} Anna met Bert at the lake {i} times." for i in range(30)]
        lines += ["Bert said hello.", "so Anna left"]
        with gzip.open(folder / "corpus.jsonl.gz", "wt", encoding="utf-8") as file:
            file.writelines(json.dumps({"content": line}) + "\n" for line in lines)
        found.append(read_chain(folder))
    return found


def test_a_larger_store_begins_with_the_smaller_one(chains: list[Chain]) -> None:
    small, large = list(iter_rows(500, chains)), list(iter_rows(900, chains))
    assert large[:500] == small
    assert list(iter_rows(500, chains, seed=1)) != small


def test_words_and_lengths_are_those_of_the_sets(chains: list[Chain]) -> None:
    rows = list(iter_rows(2_000, chains))
    lengths = {len(str(row[1]).partition(": ")[2].split()) for row in rows if row[2] != "facts"}
    assert lengths <= set(chains[0].lengths.tolist())
    assert all(str(row[1]).strip() for row in rows)


def test_names_are_other_ones_in_every_wing(chains: list[Chain]) -> None:
    rows = list(iter_rows(6_000, chains))
    texts = [str(row[1]) for row in rows]
    assert not any("Anna" in text or "Bert" in text for text in texts)
    speakers = {text.partition(":")[0] for text, row in zip(texts, rows, strict=True)
                if row[2] == "dialog_turn"}  # fmt: skip
    assert len(speakers) >= 4


def test_a_word_that_nothing_follows_starts_a_new_sentence(chains: list[Chain]) -> None:
    chain = chains[0]
    last = chain.words.index("left")
    assert chain.starts[last] == chain.starts[last + 1]
    assert np.all(chain.followers < len(chain.words))


@pytest.mark.skipif(find_shared() is None, reason="the shared sets are not beside the checkout")
def test_a_store_of_the_real_sets_can_be_read(tmp_path: Path) -> None:
    write_store(tmp_path / "memory.db", 300)
    with closing(sqlite3.connect(tmp_path / "memory.db")) as db:
        assert (
            db.execute("SELECT count(*), count(DISTINCT content) FROM memories").fetchone()[0]
            == 300
        )
