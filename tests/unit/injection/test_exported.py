"""What an earlier export held, against a plain dictionary."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noctuary.sources import echo as exported
from noctuary.sources.echo import ExportedContents
from noctuary.sources.injected import hash_exact


@given(st.dictionaries(st.text(max_size=4), st.text(max_size=8)), st.lists(st.text(max_size=4)))
def test_it_answers_as_a_dictionary_of_hashes(rows: dict[str, str], others: list[str]) -> None:
    held = ExportedContents(rows.items())
    assert len(held) == len(rows)
    for memory_id in (*rows, *others):
        known = rows.get(memory_id)
        assert held.get(memory_id) == (None if known is None else hash_exact(known))
        assert (memory_id in held) == (memory_id in rows)


def test_ids_of_which_the_first_half_of_the_hash_is_equal_are_told_apart(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def same_half(text: str) -> bytes:
        return b"8 bytes." + hash_exact(text)[:8]

    monkeypatch.setattr(exported, "hash_exact", same_half)
    rows = {str(n): f"content {n}" for n in range(20)}
    held = ExportedContents(rows.items())
    assert [held.get(n) for n in rows] == [same_half(text) for text in rows.values()]
    assert "21" not in held
    assert 3 not in held


def test_an_export_that_is_not_there_or_damaged_held_nothing(tmp_path: Path) -> None:
    damaged = tmp_path / "memories.parquet"
    damaged.write_bytes(b"no parquet")
    for path in (None, tmp_path / "gone.parquet", damaged):
        assert len(ExportedContents.read(path)) == 0
