"""Sources and stores of the end-to-end tests: built from the sample, copied, compared."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import sqlite3
from collections.abc import Generator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from noctuary.core.formats import FORMATS
from noctuary.core.manifest import Manifest, read_manifest, read_pointer
from noctuary.core.store import StorePaths
from noctuary.recall.api import recall
from noctuary.recall.engine import Recaller
from noctuary.recall.result import RecallResult
from noctuary.work.ledger import end_night
from noctuary_pipelines import sample

CANARIES = ("CANARY-7f3a9c-DO-NOT-EXPORT", "CANARY-SCAN-51d2")
"""Planted in rows that are flagged sensitive, and in rows that only the secret scan can catch."""

_SMALL_MEMORIES = 44
_SMALL_TURNS = 44  # two clusters of 20 beside the protected tail of 4
_SMALL_SENSITIVE = (53, 161, 181, 212, 284)


@dataclass(frozen=True)
class Bench:
    """A source and the store that is built from it; both private to one test."""

    source: Path
    store: Path

    @property
    def paths(self) -> StorePaths:
        """The files of the store."""
        return StorePaths(self.store)

    @property
    def serving(self) -> str:
        """The id of the serving snapshot."""
        return read_pointer(self.paths).snapshot_id

    @property
    def manifest(self) -> Manifest:
        """The manifest of the serving snapshot."""
        return read_manifest(self.snapshot)

    @property
    def snapshot(self) -> Path:
        """The directory of the serving snapshot."""
        return self.paths.snapshots / self.serving

    def ask(self, query: str, k: int = 10, **options: Any) -> RecallResult:
        """Recall without leaving a trace in the access log."""
        return recall(query, k, store=self.store, dry_run=True, **options)

    def twin(self, directory: Path) -> Bench:
        """Return a copy of both in another directory."""
        source = directory / self.source.name
        directory.mkdir(parents=True, exist_ok=True)
        with closing(sqlite3.connect(self.source)) as old, closing(sqlite3.connect(source)) as new:
            old.backup(new)
            new.execute("PRAGMA journal_mode = WAL")
        return Bench(source, copy_store(self.store, directory / "store"))


def sample_rows() -> list[Any]:
    """Return every row of the sample, as its builder reads them."""
    return sample.load_rows()


def build_full_source(directory: Path) -> Path:
    """Build the whole sample with its labelled queries beside it."""
    source = directory / "memory.db"
    sample.build(source)
    shutil.copy(sample.QUERIES, directory / "queries.jsonl")
    return source


def build_small_source(directory: Path) -> Path:
    """Build a tenth of the sample: memories, one session worth summarising, sensitive rows."""
    source = directory / "memory.db"
    sample.build(source)
    rows = [row for row in sample_rows() if row.id not in _SMALL_SENSITIVE]
    turns = [row.id for row in rows if "session:inc-481" in row.tags.split(",")][:_SMALL_TURNS]
    memories = [row.id for row in rows if row.category != "turn"][:_SMALL_MEMORIES]
    kept = ",".join(str(i) for i in (*turns, *memories, *_SMALL_SENSITIVE))
    with editing(source) as db:
        db.execute(f"DELETE FROM memories WHERE id NOT IN ({kept})")
    with closing(sqlite3.connect(source)) as db:
        db.execute("VACUUM")
    return source


@contextmanager
def editing(source: Path) -> Generator[sqlite3.Connection]:
    """Open a source for one transaction of ordinary SQL."""
    with closing(sqlite3.connect(source)) as db, db:
        yield db


def add_memory(source: Path, content: str, **columns: Any) -> int:
    """Insert a memory and return its id."""
    values = {"content": content, "created_at": "2026-11-16T08:00:00+00:00", **columns}
    values.setdefault("updated_at", values["created_at"])
    with editing(source) as db:
        names, marks = ", ".join(values), ", ".join("?" * len(values))
        cursor = db.execute(
            f"INSERT INTO memories ({names}) VALUES ({marks})", tuple(values.values())
        )
    return int(cursor.lastrowid or 0)


def copy_store(store: Path, to: Path) -> Path:
    """Copy a store; the encoder's 90 MB never change and are linked."""

    def copy(old: str, new: str) -> str:
        if f"{os.sep}encoders{os.sep}" in old:
            os.link(old, new)
            return new
        return shutil.copy2(old, new)

    return shutil.copytree(store, to, copy_function=copy)


def give_encoder(store: Path, made_by: Bench) -> None:
    """Let a new store begin with exported encoders: making them is most of a small first night."""
    copy_store(made_by.paths.encoders, store / "encoders")
    stamp = Path("work", "stamps", "query_encoder.json")
    (store / stamp).parent.mkdir(parents=True)
    shutil.copy(made_by.store / stamp, store / stamp)
    end_night(StorePaths(store), finished=True)


def fingerprint_tree(directory: Path) -> dict[str, tuple[str, int, int]]:
    """Return checksum, modification time and inode of every file: equal ones were not touched."""
    return {
        str(p.relative_to(directory)): (_sha256(p), p.stat().st_mtime_ns, p.stat().st_ino)
        for p in sorted(directory.rglob("*"))
        if p.is_file()
    }


def checksums(directory: Path) -> dict[str, str]:
    """Return the checksum of every file below a directory."""
    return {name: found[0] for name, found in fingerprint_tree(directory).items()}


def answers(bench: Bench, queries: Sequence[str]) -> list[list[tuple[int | str, float]]]:
    """Return ids and scores of the answers to some queries, in order.

    Asked as the night's evaluation asks: a process that keeps calling `recall` may change to ONNX
    Runtime after some questions, and its vectors differ in the seventh digit.
    """
    recaller = Recaller.open(bench.store)
    return [[(m.id, m.final_score) for m in recaller.recall(q).memories] for q in queries]


def labelled_queries() -> list[dict[str, Any]]:
    """Return the sample's queries as they are written."""
    lines = sample.QUERIES.read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines if line]


def files_of(home: Path) -> dict[str, str]:
    """Return the files below a home, by path, with the first format that names each, else ""."""
    stores = {path.parent.name for path in home.glob("*/work")}
    found: dict[str, str] = {}
    for path in sorted(p for p in home.rglob("*") if p.is_file()):
        name = path.relative_to(home).as_posix()
        top, *below = re.sub(r"-(wal|shm)$", "", name).split("/")
        parts = ["STORE" if top in stores else top, *below]
        owners = (n for n, f in FORMATS.items() if any(_names(p, parts) for p in f.files))
        found[name] = next(owners, "")
    return found


def _names(pattern: str, parts: Sequence[str]) -> bool:
    """Say whether a pattern of a format is a path or a directory above it."""
    wanted = pattern.split("/")
    return len(wanted) <= len(parts) and all(map(fnmatchcase, parts, wanted))


def leftovers(store: Path) -> list[str]:
    """Return what a finished night must not leave: staging, temporary and half-removed files."""
    patterns = ("*.tmp", ".building-*", ".removing-*", ".previous*", ".*.old", ".export*")
    found = {p for pattern in patterns for p in store.rglob(pattern)}
    waiting = set((store / "candidates").glob("*"))
    return sorted(str(p.relative_to(store)) for p in found | waiting)


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
