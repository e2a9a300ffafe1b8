"""Opening the graph of a snapshot directory for one scope. The caller has verified the snapshot."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from noctuary.errors import StoreError
from noctuary.files import read_array
from noctuary.graph.view.sight import Mask, make_sight
from noctuary.graph.view.source import MENTION_FIELDS, STEP_FIELDS, Arrays, GraphSource
from noctuary.immutable import connect_immutable

_TABLES = frozenset({"concepts", "concept_names", "concept_edges", "supersessions", "merges"})


class GraphFiles(NamedTuple):
    """Where the graph of one snapshot lies.

    Attributes:
        rows: The SQLite file.
        mentions: Its mention arrays, by MENTION_FIELDS.
        steps: Its step arrays, by STEP_FIELDS.
    """

    rows: Path
    mentions: Mapping[str, Path]
    steps: Mapping[str, Path]

    @staticmethod
    def locate(
        directory: Path,
        rows_file: str,
        mention_file: Callable[[str], str],
        step_file: Callable[[str], str],
    ) -> GraphFiles:
        """Return the files of a snapshot directory, named by its layout."""
        mentions = {name: directory / mention_file(name) for name in MENTION_FIELDS}
        steps = {name: directory / step_file(name) for name in STEP_FIELDS}
        return GraphFiles(directory / rows_file, mentions, steps)


class Looking(NamedTuple):
    """What is looked at.

    Attributes:
        allowed: (n,) True where the scope allows the memory, or None for everything.
        created_at_us: (n,) when each memory came about.
        relations: Names of the step relations by code.
        ids_are_integers: Whether the source's own ids are numbers.
        as_of_us: Moment of valid time, or None for now.
        known_at_us: Moment of transaction time, or None for now.
    """

    allowed: Mask | None
    created_at_us: NDArray[np.int64]
    relations: Sequence[str]
    ids_are_integers: bool
    as_of_us: int | None = None
    known_at_us: int | None = None


@contextmanager
def open_graph(files: GraphFiles, looking: Looking) -> Generator[GraphSource]:
    """Open the graph as one scope may see it; closed on leaving.

    Raises:
        StoreError: The snapshot was built before concepts could be looked at.
    """
    with closing(connect_immutable(files.rows)) as rows:
        _require(rows, files)
        updated = None if looking.known_at_us is None else _updated_at_us(rows)
        allowed = looking.allowed
        if allowed is None:
            allowed = np.ones(looking.created_at_us.size, dtype=np.bool_)
        sight = make_sight(
            allowed,
            looking.created_at_us,
            updated_at_us=updated,
            as_of_us=looking.as_of_us,
            known_at_us=looking.known_at_us,
        )
        arrays = Arrays(_read(files.mentions), _read(files.steps))
        ids_are_integers = looking.ids_are_integers
        yield GraphSource(rows, arrays, sight, looking.relations, ids_are_integers=ids_are_integers)


def _require(rows: sqlite3.Connection, files: GraphFiles) -> None:
    found = {name for (name,) in rows.execute("SELECT name FROM sqlite_master")}
    missing = sorted(_TABLES - found)
    missing += [p.name for p in (*files.mentions.values(), *files.steps.values()) if not p.exists()]
    if missing:
        raise StoreError(
            f"snapshot {files.rows.parent.name} has no {', '.join(missing)}: it was built before "
            "concepts could be looked at; run the nightly job"
        )


def _read(paths: Mapping[str, Path]) -> dict[str, NDArray[Any]]:
    # A plain view of the map: every slice of a memmap object costs some microseconds more.
    return {name: read_array(path).view(np.ndarray) for name, path in paths.items()}


def _updated_at_us(rows: sqlite3.Connection) -> NDArray[np.int64]:
    found = rows.execute("SELECT updated_at_us FROM memories ORDER BY position").fetchall()
    return np.array([when for (when,) in found], dtype=np.int64)
