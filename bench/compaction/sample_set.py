"""The bundled sample as a labelled set: its rows as JSON lines beside its queries."""

from __future__ import annotations

import gzip
import json
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

from noctuary_pipelines import sample

SAMPLE = "sample"
_COLUMNS = ("id", "content", "category", "tags", "expanded_keywords", "importance", "is_sensitive")
_TIMES = ("created_at", "updated_at")


def write_sample_set(directory: Path) -> Path:
    """Write corpus.jsonl.gz and queries.jsonl into a folder, and return the folder."""
    directory.mkdir(parents=True, exist_ok=True)
    columns = (*_COLUMNS, *_TIMES)
    database = sample.place_sample(directory / "source")
    with (
        closing(sqlite3.connect(database)) as db,
        gzip.open(directory / "corpus.jsonl.gz", "wt", encoding="utf-8") as lines,
    ):
        for row in db.execute(f"SELECT {', '.join(columns)} FROM memories ORDER BY id"):
            values = dict(zip(columns, row, strict=True))
            values["is_sensitive"] = bool(values["is_sensitive"])
            lines.write(json.dumps(values, ensure_ascii=False) + "\n")
    shutil.copyfile(sample.QUERIES, directory / "queries.jsonl")
    return directory
