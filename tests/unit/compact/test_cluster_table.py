from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from noctuary.compact import clusters as cluster_table
from noctuary.compact.clusters import Cluster, iter_clusters, write_clusters
from noctuary.core.errors import StoreError
from noctuary.core.types import UNDATED_US
from tests.support.turns import cluster_turns, turn


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "clusters.parquet"


@pytest.fixture(scope="module")
def clusters() -> list[Cluster]:
    records = [turn(i, f"s{i % 7}", user="u" if i % 2 else None, wing="w") for i in range(40)]
    records.append(turn(99, "undated", created_at_us=UNDATED_US))
    return cluster_turns(records, target=2, protected_tail=0)


def test_clusters_come_back_as_they_were(path: Path, clusters: list[Cluster]) -> None:
    assert write_clusters(path, clusters) == len(clusters)
    assert list(iter_clusters(path)) == clusters
    assert write_clusters(path, []) == 0
    assert list(iter_clusters(path)) == []


def test_row_groups_are_read_one_by_one(
    path: Path, clusters: list[Cluster], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster_table, "ROW_GROUP_ROWS", 3)
    write_clusters(path, iter(clusters))
    assert pq.read_metadata(path).num_row_groups == -(-len(clusters) // 3)
    assert list(iter_clusters(path)) == clusters


def test_equal_clusters_give_equal_bytes(path: Path, clusters: list[Cluster]) -> None:
    write_clusters(path, clusters)
    before = path.read_bytes()
    write_clusters(path, iter(clusters))
    assert path.read_bytes() == before


def test_the_old_table_stays_where_clustering_fails(path: Path, clusters: list[Cluster]) -> None:
    def failing() -> Iterator[Cluster]:
        yield clusters[0]
        raise RuntimeError("the power went out")

    write_clusters(path, clusters)
    with pytest.raises(RuntimeError):
        write_clusters(path, failing())
    assert list(iter_clusters(path)) == clusters
    assert [p.name for p in path.parent.iterdir()] == [path.name]


def test_what_is_no_cluster_table_is_refused(path: Path) -> None:
    with pytest.raises(StoreError, match="cannot be read"):
        list(iter_clusters(path))
    path.write_bytes(b"no table")
    with pytest.raises(StoreError, match="run the night again"):
        list(iter_clusters(path))
    pq.write_table(pa.table({"x": [1]}), path)
    with pytest.raises(StoreError, match=r"has columns \['x'\], expected \['cluster_id'"):
        list(iter_clusters(path))
