"""A claude-memory cache and the nights that propose for it: real stages, vectors by hand."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import numpy as np

from noctuary.core.files import write_array
from noctuary.core.settings import CurationSettings, Settings
from noctuary.core.store import StorePaths
from noctuary.embed.fingerprint import EncoderFingerprint
from noctuary.work.stage import StageOutput, StageResult
from noctuary_assets.graph import connect_memories
from noctuary_assets.index import MEMORY_VECTORS
from noctuary_assets.ingest import CORPUS, export_memories
from noctuary_assets.night import VECTORS, Night
from noctuary_assets.proposals import propose_curation
from tests.support.claude_memory import Row, make_sqlite

DIM = 32
ENCODER = EncoderFingerprint("m", "0" * 64, DIM, "mean", True, "", "", 64)
TEXT = "The harbour master answers on channel 12."
ROWS: tuple[Row, ...] = (
    {"content": TEXT, "created_at": "2026-01-01T00:00:00+00:00", "importance": 0.9},
    {"content": TEXT, "created_at": "2026-01-02T00:00:00+00:00", "importance": 0.6},
    {"content": "Tides (part 1 of 2): high at six."},
    {"content": "Tides (part 2 of 2): low at noon."},
    {"content": "Nina works at Initech.", "created_at": "2026-01-01T00:00:00+00:00"},
    {"content": "Nina works at Hooli.", "created_at": "2026-03-01T00:00:00+00:00"},
    {"content": "Deploy port: 8080"},
    {"content": "Deploy port: 9090"},
)


class Nights:
    """A source with a store of its own."""

    def __init__(self, root: Path) -> None:
        self.source = make_sqlite(root / "memory.db", ROWS)
        self.paths = StorePaths(root / "store")

    def run(self, *, enabled: bool = True) -> StageResult:
        """Export, embed, connect and propose; nothing is near anything else."""
        settings = Settings(curation=CurationSettings(enabled=enabled))
        night = Night(self.paths, self.source, settings)
        night.encoder.fingerprint = ENCODER
        export_memories(night)
        rows = night.result_of(CORPUS).rows

        def body() -> StageOutput:
            write_array(night.work(VECTORS), np.eye(rows, DIM, dtype=np.float32))
            return StageOutput(rows, {})

        night.run(MEMORY_VECTORS, {"corpus": night.result_of(CORPUS).digest}, body)
        connect_memories(night)
        return propose_curation(night)

    def edit(self, statement: str) -> None:
        """Change the source."""
        with closing(sqlite3.connect(self.source)) as db:
            db.execute(statement)
            db.commit()
