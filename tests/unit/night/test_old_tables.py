"""Files of an earlier version hold texts that nothing else would forget."""

from __future__ import annotations

from pathlib import Path

from noctuary.core.store import StorePaths
from noctuary.graph.tables import FILES
from noctuary_assets import housekeeping
from noctuary_assets.night import GRAPH, Night


def test_tables_of_an_earlier_version_go_and_those_of_this_one_stay(tmp_path: Path) -> None:
    night = Night(StorePaths(tmp_path), tmp_path)
    directory = night.work(GRAPH)
    directory.mkdir(parents=True)
    kept = set(FILES.values())
    for name in (*kept, "mentions.parquet", "concept_vectors.parquet"):
        (directory / name).write_bytes(b"PAR1")
    housekeeping._drop_old_files(night)  # pyright: ignore[reportPrivateUsage]
    assert {path.name for path in directory.iterdir()} == kept


def test_replayed_questions_of_an_earlier_version_go(tmp_path: Path) -> None:
    night = Night(StorePaths(tmp_path), tmp_path)
    for name in ("replays.jsonl", "replays.jsonl.1", "replays.sqlite"):
        (tmp_path / name).write_bytes(b"{}")
    housekeeping._drop_old_files(night)  # pyright: ignore[reportPrivateUsage]
    assert [path.name for path in tmp_path.iterdir()] == ["replays.sqlite"]
