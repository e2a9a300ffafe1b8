"""Indices that Ray builds are read by LanceDB; errors and deaths inside Ray. Ray really runs."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from noctuary.core.errors import EncoderError, ShardError
from noctuary.core.settings import RunnerSettings
from noctuary.work.content import VALUE
from noctuary.work.ray import RayRunner, open_ray_runner
from noctuary.work.runner import LocalRunner
from noctuary.work.shards import IndexKind, IndexSpec, Shard, list_shards, open_table
from tests.support.batch_tasks import DieOnce, Fail, NameProcess, ShoutTexts, batches_of

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore"),
    pytest.mark.skipif(
        importlib.util.find_spec("lance_ray") is None, reason="needs the extra: make setup-ray"
    ),
]

TEXTS = [f"memory {number}" for number in range(40)]
ROWS, DIM = 2_000, 32


@pytest.fixture(scope="module")
def ray() -> Iterator[RayRunner]:
    runner = open_ray_runner(RunnerSettings(kind="ray", workers=2))
    yield runner
    runner.close()
    assert not importlib.import_module("ray").is_initialized()


def shards_of(tmp_path: Path, texts: list[str] = TEXTS) -> list[Shard]:
    return list(list_shards(batches_of(texts), tmp_path / "shards", "salt", 10))


def test_ray_writes_what_processes_write(ray: RayRunner, tmp_path: Path) -> None:
    shards = shards_of(tmp_path)
    here, there = tmp_path / "here", tmp_path / "there"
    LocalRunner(workers=1).run(ShoutTexts(), shards, here)
    made = ray.run(ShoutTexts(), shards, there)
    assert [fragment.key for fragment in made] == [shard.key for shard in shards]
    assert sorted(path.name for path in there.iterdir()) == sorted(p.name for p in here.iterdir())
    assert all(path.read_bytes() == (there / path.name).read_bytes() for path in here.iterdir())


def test_an_actor_opens_its_task_once(ray: RayRunner, tmp_path: Path) -> None:
    made = ray.run(NameProcess(), shards_of(tmp_path), tmp_path / "made")
    told = {value for part in made for value in open_table(part.path)[VALUE].to_pylist()}
    assert 1 <= len(told) <= 2
    assert {tuple(text.split()[1:]) for text in told} == {("1", "1")}


@pytest.mark.parametrize(
    ("how", "kind", "sentence"),
    [
        ("plain", ShardError, "fail: .* failed: ValueError: the seventh is odd"),
        ("noctuary", EncoderError, "^no such model$"),
    ],
)
def test_an_error_arrives_in_its_own_words(
    ray: RayRunner, how: str, kind: type[Exception], sentence: str, tmp_path: Path
) -> None:
    with pytest.raises(kind, match=sentence):
        ray.run(Fail(how), shards_of(tmp_path, [*TEXTS, "bad"]), tmp_path / "made")


def test_an_actor_that_is_killed_is_replaced(
    ray: RayRunner, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    marks = tmp_path / "marks"
    marks.mkdir()
    (marks / "one").touch()
    made = ray.run(DieOnce(marks), shards_of(tmp_path, [*TEXTS, "bad"]), tmp_path / "made")
    values = [value for part in made for value in open_table(part.path)[VALUE].to_pylist()]
    assert values == [text.upper() for text in [*TEXTS, "bad"]]
    assert not list(marks.iterdir())
    assert capfd.readouterr() == ("", ""), "a night's own lines are all that is shown"


def test_a_shard_that_kills_its_actors_is_given_up(ray: RayRunner, tmp_path: Path) -> None:
    marks = tmp_path / "marks"
    marks.mkdir()
    for number in range(20):
        (marks / str(number)).touch()
    with pytest.raises(ShardError, match="die: Ray gave up"):
        ray.run(DieOnce(marks), shards_of(tmp_path, [*TEXTS, "bad"]), tmp_path / "made")


def test_a_ray_that_others_started_stays(ray: RayRunner, tmp_path: Path) -> None:
    ray.cluster.connect()
    second = open_ray_runner(RunnerSettings(kind="ray"))
    second.run(ShoutTexts(), shards_of(tmp_path), tmp_path / "made")
    second.close()
    assert importlib.import_module("ray").is_initialized()


def table_of(directory: Path, vectors: Any) -> Any:
    import lancedb
    import pyarrow as pa

    column = pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), DIM)
    rows = pa.table({"row": np.arange(len(vectors)), "vector": column})
    return lancedb.connect(str(directory)).create_table("memories", data=rows)


@pytest.mark.parametrize("kind", ["IVF_SQ", "IVF_RQ"])
def test_an_index_that_ray_built_is_searched_by_lancedb(
    ray: RayRunner, kind: IndexKind, tmp_path: Path
) -> None:
    random = np.random.default_rng(7)
    vectors = random.normal(size=(ROWS, DIM)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    table = table_of(tmp_path, vectors)
    # Two bits of IVF_RQ, as the tiers have them: one finds .9 of such vectors.
    ray.build_index(table, IndexSpec(kind, partitions=2, bits=2))
    assert [index.num_unindexed_rows for index in table.list_indices()] == [0]
    hits = 0
    for query in vectors[:20]:
        search = table.search(query).distance_type("cosine").nprobes(2).refine_factor(10).limit(10)
        exact = np.argsort(-(vectors @ query))[:10]
        hits += len(set(search.to_arrow()["row"].to_pylist()) & set(exact.tolist()))
    assert hits >= 0.95 * 200


def test_ray_compacts_what_lancedb_wrote_since(ray: RayRunner, tmp_path: Path) -> None:
    vectors = np.eye(DIM, dtype=np.float32).repeat(20, axis=0)
    table = table_of(tmp_path, vectors)
    ray.build_index(table, IndexSpec("IVF_SQ", partitions=1))
    table.add(table.to_arrow().slice(0, 5))
    assert [index.num_unindexed_rows for index in table.list_indices()] == [5]
    ray.compact(table, timedelta(hours=1))
    assert table.count_rows() == len(vectors) + 5
    assert [index.num_unindexed_rows for index in table.list_indices()] == [0]
