"""What `noctuary doctor` says about rows: vectors that are missing, rows that no index covers.

What belongs here: judging the serving snapshot's vectors and LanceDB's own counts. LanceDB belongs
to the build side and takes a second to import, so it is asked only where a table has an index.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from pathlib import Path

from noctuary.diagnosis.finding import Finding
from noctuary.snapshot import layout
from noctuary.snapshot.layout import StorePaths
from noctuary.snapshot.manifest import Manifest
from noctuary.vectors.lance import connect, list_tables


def look_at_vectors(snapshot: Path, manifest: Manifest) -> Iterator[Finding]:
    """Yield whether every memory of a snapshot has a vector; nothing where it has no encoder.

    Args:
        snapshot: The snapshot's directory.
        manifest: Its manifest.
    """
    if manifest.encoder is None:
        return
    # Here and not above: numpy must not be loaded before the command has limited its threads.
    import numpy as np

    memories = int(manifest.counts.get("memories", 0))
    vectors = np.load(snapshot / layout.VECTORS_FILE, mmap_mode="r", allow_pickle=False)
    missing = memories - len(vectors)
    if missing:
        yield Finding(
            "vectors", "fail", f"{memories:,} memories have {len(vectors):,} vectors",
            "run `noctuary rollback`, then `make nightly`",
        )  # fmt: skip
    else:
        yield Finding("vectors", "ok", f"each of {memories:,} memories has one")


def look_at_index(paths: StorePaths) -> Finding:
    """Return how many rows of the LanceDB tables their indexes leave out."""
    tables = list_tables(paths.lance, "")
    indexed = [name for name in tables if _has_index(paths.lance / f"{name}.lance")]
    if not tables:
        return Finding("index", "ok", "there are no LanceDB tables; recall needs none")
    if not indexed:
        return Finding(
            "index", "ok", f"{len(tables)} LanceDB tables without an index: scans are exact"
        )
    if importlib.util.find_spec("lancedb") is None:
        return Finding("index", "ok", "LanceDB is not installed here: its indexes cannot be read")
    left_out = {name: count for name in indexed if (count := _unindexed(paths.lance, name))}
    if left_out:
        told = ", ".join(f"{count:,} rows of {name}" for name, count in left_out.items())
        return Finding(
            "index", "warn", f"{told} are in no index: searches scan them one by one",
            "run `make nightly`: it takes them in; recall reads the snapshot and misses none",
        )  # fmt: skip
    return Finding("index", "ok", f"the indexes of {len(indexed)} LanceDB tables cover every row")


def _has_index(table: Path) -> bool:
    indices = table / "_indices"
    return indices.is_dir() and any(indices.iterdir())


def _unindexed(lance_dir: Path, name: str) -> int:
    table = connect(lance_dir).open_table(name)
    return sum(int(index.num_unindexed_rows) for index in table.list_indices())
