"""Which memories are a shard: decided by their own hashes and the count alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noctuary.corpus.columns import READ_ROWS
from noctuary.corpus.partition import Partition, find_partition, partition_names
from noctuary.errors import ShardError, StoreError
from noctuary.hashing import hash_text

HASHES = st.lists(st.text(max_size=9).map(hash_text), max_size=40)
COUNTS = st.integers(1, 12)


@given(HASHES, COUNTS)
def test_every_memory_is_in_the_shard_of_its_hash_and_in_no_other(
    hashes: list[str], count: int
) -> None:
    expected = [int(value[:8], 16) % count for value in hashes]
    for number in range(count):
        found = Partition(number, count).members(hashes).tolist()
        assert found == [place for place, of in enumerate(expected) if of == number]


@given(HASHES, HASHES, COUNTS)
def test_no_memory_moves_when_others_come_or_go(
    hashes: list[str], others: list[str], count: int
) -> None:
    among = [*others, *hashes]
    for number in range(count):
        shard = Partition(number, count)
        alone = [hashes[place] for place in shard.members(hashes)]
        later = [among[place] for place in shard.members(among) if place >= len(others)]
        assert alone == later


def write_table(path: Path, rows: int) -> Any:
    import pyarrow as pa
    import pyarrow.parquet as pq

    hashes = [hash_text(str(n)) for n in range(rows)]
    columns = {"position": list(range(rows)), "content": hashes[::-1], "content_hash": hashes}
    table = pa.table(columns)
    pq.write_table(table, path)
    return table


def test_the_shards_of_a_table_are_the_table(tmp_path: Path) -> None:
    """More rows than are read at once."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = write_table(tmp_path / "memories.parquet", READ_ROWS + 777)
    parts: list[Any] = []
    for number in range(3):
        to = tmp_path / "parts" / f"{number}.parquet"
        shard = Partition(number, 3)
        assert shard.write(tmp_path / "memories.parquet", to) > READ_ROWS // 4
        part = pq.read_table(to)
        assert part.schema == table.schema
        assert part["position"].to_pylist() == sorted(part["position"].to_pylist())
        assert {int(h[:8], 16) % 3 for h in part["content_hash"].to_pylist()} == {number}
        parts.append(part)
    assert pa.concat_tables(parts).sort_by("position").equals(table.combine_chunks())


def test_a_shard_without_memories_is_an_empty_table(tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    write_table(tmp_path / "memories.parquet", 1)
    to = tmp_path / "part.parquet"
    counts = [Partition(n, 5).write(tmp_path / "memories.parquet", to) for n in range(5)]
    assert sorted(counts) == [0, 0, 0, 0, 1]
    Partition(counts.index(0), 5).write(tmp_path / "memories.parquet", to)
    assert pq.read_table(to).num_rows == 0


def test_a_table_that_is_not_there_is_said_so_without_its_bytes(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="run the nightly job"):
        Partition(0, 2).write(tmp_path / "gone.parquet", tmp_path / "to.parquet")
    (tmp_path / "torn.parquet").write_bytes(b"PAR1 CANARY PAR1")
    with pytest.raises(StoreError) as caught:
        Partition(0, 2).write(tmp_path / "torn.parquet", tmp_path / "to.parquet")
    assert "CANARY" not in str(caught.value)


def test_names_lead_back_to_their_shard() -> None:
    assert partition_names(2) == ["shard-000", "shard-001"]
    assert [find_partition(n, 3).number for n in partition_names(3)] == [0, 1, 2]
    assert partition_names(1_200)[-1] == "shard-1199"
    with pytest.raises(ShardError, match="no shard-002 among 2 shards"):
        find_partition("shard-002", 2)
