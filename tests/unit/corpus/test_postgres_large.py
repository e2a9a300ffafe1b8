"""130,000 rows: every one read once, in bounded memory, by whoever may see them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.claude_memory import migrations
from tests.support.databases import MakeDatabase, run_sql

ROWS = 130_000

_FILL = (
    (
        "INSERT INTO memories (content, tags, user_id, is_sensitive, updated_at) "
        "SELECT 'Row ' || i || ': the harbour master of pier ' || i % 977 || "
        "repeat(' and so on', i % 40), 't' || i % 50, CASE WHEN i % 3 = 0 THEN 'anna' ELSE 'ben' "
        "END, i % 1000 = 0, '2026-01-01Z'::timestamptz + i * interval '1 second' "
        f"FROM generate_series(1, {ROWS}) AS i"
    ),
    (
        "INSERT INTO tag_shares (owner_id, tag, shared_with) "
        "SELECT 'anna', 't' || i, 'ben' FROM generate_series(1, 10) AS i"
    ),
    (
        "INSERT INTO memory_links (user_id, src_id, dst_id, link_type) "
        f"SELECT 'anna', i, i - 1, 'supersedes' FROM generate_series(2, {ROWS}, 10) AS i"
    ),
    "ANALYZE",
)

# In a process of its own: peak memory is that of a whole process.
_READ = """
import json, resource, sys, time
import pyarrow.parquet
from pathlib import Path
from noctuary.sources.evidence import write_evidence
from noctuary.sources.export import export_corpus
from tests.support.databases import open_database

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024

dsn, out = sys.argv[1], Path(sys.argv[2])
with open_database(dsn) as source:
    next(source.rows())
    before, started = peak(), time.perf_counter()
    keys = [row.key for row in source.rows()]
    said = {"read_s": time.perf_counter() - started, "read_mb": peak() - before}
    assert keys == list(range(1, len(keys) + 1))
    report = export_corpus(source, out)
    counts = write_evidence(source, out)
    said.update(rows=len(keys), exported=report.exported, links=counts.links, shares=counts.shares)
with open_database(dsn, "ben") as source:
    started = time.perf_counter()
    said["bens"] = sum(1 for _ in source.rows())
    said["bens_s"] = time.perf_counter() - started
print(json.dumps(said))
"""


@pytest.mark.slow
def test_a_large_database_is_read_in_bounded_memory(database: MakeDatabase, tmp_path: Path) -> None:
    dsn = database(schema=migrations(vectors="stand-in"))
    for statement in _FILL:
        run_sql(dsn, statement)
    words = [sys.executable, "-c", _READ, dsn, str(tmp_path)]
    root = Path(__file__).resolve().parents[3]
    done = subprocess.run(words, cwd=root, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    sys.stdout.write(f"{said}\n")
    assert (said["rows"], said["exported"]) == (ROWS, ROWS - ROWS // 1000)
    annas = ROWS // 3
    by_tag = sum(1 for i in range(3, ROWS + 1, 3) if 1 <= i % 50 <= 10)
    assert said["bens"] == ROWS - annas + by_tag
    sensitive = set(range(1000, ROWS + 1, 1000))
    assert said["shares"] == by_tag - sum(1 for i in sensitive if i % 3 == 0 and 1 <= i % 50 <= 10)
    assert said["links"] == ROWS // 10 - sum(1 for i in sensitive if i % 10 in (1, 2))
    # All texts together are 40 MB; a page is one of them in a hundred.
    assert said["read_mb"] < 30
    # Thirty times what a quiet machine needs: only a scan of the table per page takes longer.
    assert said["bens_s"] < 90
