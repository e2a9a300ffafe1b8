"""MemPalace palaces for tests: made by the real chromadb, with vectors that cost nothing.

The shape is what MemPalace writes: one collection of drawers with metadata, one of closets.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing, contextmanager
from functools import cache
from itertools import islice
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

from noctuary.sources.palace import CHROMA_FILE, DRAWERS

DIM = 2
ADDED_AT_ONCE = 5_000
"""chromadb takes some 5,461 drawers in one call at most."""


class Drawer(NamedTuple):
    """A drawer as MemPalace files it; a document of None makes one that has none."""

    drawer_id: str
    document: str | None
    metadata: Mapping[str, Any]


def drawer(drawer_id: str, document: str | None, **metadata: Any) -> Drawer:
    """Return a drawer with what every one has: wing, room, when it was filed."""
    values = {"wing": "work", "room": "general", "filed_at": "2026-03-01T12:00:00", **metadata}
    return Drawer(drawer_id, document, {k: v for k, v in values.items() if v is not None})


def make_palace(
    folder: Path, drawers: Iterable[Drawer], others: Mapping[str, Sequence[Drawer]] | None = None
) -> Path:
    """Make a palace and return its Chroma file.

    Args:
        folder: Of the palace; may exist.
        drawers: What its collection of drawers holds.
        others: Further collections by name.
    """
    _run(_add, folder, {DRAWERS: list(drawers), **(others or {})})
    return folder / CHROMA_FILE


def add_drawers(folder: Path, collection: str, drawers: Iterable[Drawer]) -> None:
    """Add drawers to a collection, which is made where there is none."""
    _run(_add, folder, {collection: list(drawers)})


def update_drawers(folder: Path, metadata: Mapping[str, Mapping[str, Any]]) -> None:
    """Change metadata of drawers by id, as a mark does."""
    _run(_update, folder, metadata)


def file_queue(folder: Path, drawer_id: str) -> None:
    """Ask for a drawer: on a busy machine Chroma leaves it in its queue until somebody does."""
    _run(_get, folder, drawer_id)


def _run(work: Callable[..., None], folder: Path, given: object) -> None:
    _chroma_process().submit(work, folder, given).result()


@cache
def _chroma_process() -> ProcessPoolExecutor:
    """Return a process of its own for Chroma, as MemPalace has.

    Chroma brings its own SQLite. Two copies in one process do not see each other's locks; on one
    file in WAL mode that kills the process or hangs it (seen in two runs of CI).
    """
    return ProcessPoolExecutor(1, get_context("spawn"))


@contextmanager
def _client(folder: Path) -> Generator[Any]:
    import chromadb
    from chromadb.config import Settings

    settings = Settings(anonymized_telemetry=False)
    client: Any = chromadb.PersistentClient(path=str(folder), settings=settings)
    try:
        yield client
    finally:
        client.close()


def _add(folder: Path, collections: Mapping[str, Sequence[Drawer]]) -> None:
    with _client(folder) as client:
        for name, drawers in collections.items():
            made = client.get_or_create_collection(
                name, metadata={"hnsw:space": "cosine"}, embedding_function=None
            )
            waiting = iter(drawers)
            while batch := list(islice(waiting, ADDED_AT_ONCE)):
                for has_document in (True, False):
                    part = [d for d in batch if (d.document is not None) is has_document]
                    if part:
                        documents = [d.document for d in part] if has_document else None
                        made.add(
                            ids=[d.drawer_id for d in part],
                            documents=documents,
                            metadatas=[dict(d.metadata) or None for d in part],
                            embeddings=[[1.0] * DIM] * len(part),
                        )


def _update(folder: Path, metadata: Mapping[str, Mapping[str, Any]]) -> None:
    with _client(folder) as client:
        made = client.get_collection(DRAWERS, embedding_function=None)
        made.update(ids=list(metadata), metadatas=[dict(m) for m in metadata.values()])


def _get(folder: Path, drawer_id: str) -> None:
    with _client(folder) as client:
        client.get_collection(DRAWERS, embedding_function=None).get(ids=[drawer_id])


@contextmanager
def editing_palace(folder: Path) -> Generator[sqlite3.Connection]:
    """Open a palace's file for what the library would never write."""
    with closing(sqlite3.connect(folder / CHROMA_FILE)) as db, db:
        yield db
