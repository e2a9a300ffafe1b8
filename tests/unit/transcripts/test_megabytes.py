"""200 MB of transcripts: bounded memory, and nothing is read twice. Measured in processes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.transcripts import dump, working_session, write_megabytes

SIZE_BYTES = 200 * 2**20
GROWTH_MIB = 40
"""What the ingest may add to an interpreter that has imported it: a batch, its messages, SQLite's
cache. Measured: 7 MiB."""

_CHILD = """
import json, resource, sys
from pathlib import Path
from noctuary.sources.ingest import ingest_transcripts

def peak_kib():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

before = peak_kib()
report = ingest_transcripts(Path(sys.argv[1]), Path(sys.argv[2])).to_json()
print(json.dumps({**report, "growth_mib": (peak_kib() - before) / 1024}))
"""


def ingest(root: Path, turns: Path) -> dict[str, Any]:
    command = [sys.executable, "-c", _CHILD, str(root), str(turns)]
    ran = subprocess.run(command, capture_output=True, text=True, check=True)
    return json.loads(ran.stdout)


@pytest.mark.slow
@pytest.mark.parametrize("file_bytes", [8 * 2**20, SIZE_BYTES], ids=["25 files", "one file"])
def test_200_mb_are_read_once_in_bounded_memory(tmp_path: Path, file_bytes: int) -> None:
    root, turns = tmp_path / "projects", tmp_path / "turns.sqlite"
    files = list(write_megabytes(root, SIZE_BYTES, file_bytes))
    size = sum(f.stat().st_size for f in files)
    assert size >= SIZE_BYTES
    first = ingest(root, turns)
    assert (first["bytes_read"], first["faults"]) == (size, [])
    assert first["turns"] > 90_000
    assert first["growth_mib"] < GROWTH_MIB
    assert ingest(root, turns)["bytes_read"] == 0
    more = dump(working_session(10**6, 3).lines)
    with files[0].open("ab") as handle:
        handle.write(more)
    grown = ingest(root, turns)
    assert (grown["bytes_read"], grown["turns"]) == (len(more), 9)
    assert grown["unchanged"] == len(files) - 1
