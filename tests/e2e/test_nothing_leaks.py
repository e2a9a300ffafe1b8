"""What must not leave the source, or not reach Dagster's records, is in no byte of a store."""

from __future__ import annotations

import sqlite3
import sys
from contextlib import closing
from pathlib import Path

import pytest

from noctuary.core.files import read_array
from noctuary.embed.rotation import prefix
from noctuary.snapshot.publish import list_snapshots
from noctuary.sources.corpus import read_records
from noctuary_assets.night import MEMORIES, VECTORS
from tests.e2e.byte_scan import find_texts, pieces
from tests.e2e.conftest import FirstNight
from tests.e2e.driver import run, run_night
from tests.e2e.stores import CANARIES, Bench, editing, sample_rows
from tests.e2e.test_sample_night import FLAGGED, REDACTED, SCANNED

PIECE_CHARS = 24
"""Short enough to notice half a sentence, long enough that no two texts share one by chance."""


@pytest.fixture(scope="module")
def asked(full_night: FirstNight, tmp_path_factory: pytest.TempPathFactory) -> Bench:
    """The full bench after people have asked for what it must not hold, with the access log on."""
    bench = full_night.bench.twin(tmp_path_factory.mktemp("asked"))
    for query in (*CANARIES, "alarm code of the house", "passphrase"):
        words = ["recall", query, "--store", str(bench.store), "--json", "--explain"]
        ran = run([sys.executable, "-m", "noctuary.cli.main", *words], bench.store.parent)
        assert ran.code == 0, ran.says
        # The question itself is echoed; nothing that answers it is.
        assert all(c not in str(m) for c in CANARIES for m in ran.report["memories"])
    return bench


def test_no_canary_is_in_any_byte_of_the_store(asked: Bench) -> None:
    assert find_texts(asked.store, CANARIES) == []


def test_the_scan_would_have_seen_one(asked: Bench) -> None:
    """A public row is found where it belongs: in compressed Parquet, in the snapshot's SQLite."""
    public = next(row.content for row in sample_rows() if row.id == 173)
    read_as = {(name.split("/")[0], how) for name, how, _ in find_texts(asked.store, [public])}
    assert {("work", "parquet"), ("snapshots", "sqlite")} <= read_as


def test_no_part_of_a_withheld_row_is_in_the_store(asked: Bench) -> None:
    rows = sample_rows()
    withheld_ids = FLAGGED | REDACTED | SCANNED
    public = "\n".join(row.content for row in rows if row.id not in withheld_ids)
    withheld = [row.content for row in rows if row.id in withheld_ids]
    parts = {p for text in withheld for p in pieces(text, PIECE_CHARS) if p not in public}
    assert len(parts) > len(withheld)
    assert find_texts(asked.store, parts, skip=[asked.paths.encoders]) == []


def test_no_memory_text_is_in_the_dagster_home(asked: Bench) -> None:
    parts = {
        piece
        for row in sample_rows()
        for piece in pieces(row.content, PIECE_CHARS)
        if len(piece) >= PIECE_CHARS // 2
    }
    assert len(parts) > 1_000
    assert find_texts(asked.paths.dagster_home, parts) == []
    # It does hold what the night reported, so the scan read the right place.
    assert find_texts(asked.paths.dagster_home, ["texts_embedded"])


def test_no_name_of_a_memory_is_in_the_dagster_home(asked: Bench) -> None:
    """It would stay there when the memories are forgotten."""
    with closing(sqlite3.connect(asked.snapshot / "rows.sqlite")) as rows:
        found = rows.execute("SELECT canonical_name FROM concepts").fetchall()
    names = {name for (name,) in found if " " in name}
    assert len(names) > 100
    assert find_texts(asked.paths.dagster_home, names) == []


def test_nothing_of_a_withheld_row_is_said(full_night: FirstNight) -> None:
    for canary in CANARIES:
        assert canary not in full_night.ran.says


def test_a_row_that_turns_sensitive_is_gone_from_every_byte(small: Bench) -> None:
    """Older snapshots included: they would serve it after a rollback."""
    before = small.paths.snapshots / small.serving
    with editing(small.source) as db:
        row_id, text = db.execute(
            "SELECT id, content FROM memories WHERE is_sensitive = 0 ORDER BY length(content) DESC"
        ).fetchone()
        db.execute("UPDATE memories SET is_sensitive = 1 WHERE id = ?", [row_id])
    parts, vectors = pieces(text, PIECE_CHARS), _vector_bytes(small, row_id)
    assert find_texts(before, parts)
    places = {path.relative_to(small.store).parts[0] for path in _files_with(small, vectors)}
    assert places == {"work", "snapshots", "lance"}
    ran = run_night(small.source, small.store)
    assert ran.report["status"] == "published", ran.says
    assert list_snapshots(small.paths) == [small.serving]
    assert not small.paths.purge_pending.exists()
    assert find_texts(small.store, parts, skip=[small.paths.encoders]) == []
    assert _files_with(small, vectors) == [], "a vector can be turned back into its text"
    assert row_id not in {m.id for m in small.ask(text).memories}


def _vector_bytes(bench: Bench, row_id: int) -> list[bytes]:
    """Return a stretch of a memory's vector as each artifact stores it; no rotation was fitted."""
    records = read_records(bench.paths.work / MEMORIES)
    position = next(r.position for r in records if r.memory_id == str(row_id))
    vector = read_array(bench.paths.work / VECTORS)[position]
    stored = (vector, *(prefix(vector, dim) for dim in (64, 256, len(vector))))
    return [values[8:28].tobytes() for values in stored]


def _files_with(bench: Bench, stretches: list[bytes]) -> list[Path]:
    files = [
        p for p in bench.store.rglob("*") if p.is_file() and bench.paths.encoders not in p.parents
    ]
    return [p for p in files if any(stretch in p.read_bytes() for stretch in stretches)]
