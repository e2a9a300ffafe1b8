"""Files of usage with given counts, made by the writer itself."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

from noctuary.usage.statistics import Folded, Pair, Window, write_usage

DAY_US = 86_400_000_000
NOW_US = 20_000 * DAY_US

Use = tuple[int, int, int, int]
"""Retrievals, recent ones, days, last one in microseconds."""


def write(
    path: Path,
    use: Mapping[str, Use],
    pairs: Iterable[Pair] = (),
    *,
    known: Iterable[str] | None = None,
    as_of_us: int = NOW_US,
) -> str:
    """Write a usage.sqlite in which these memories were used like this; its digest.

    Args:
        path: The file.
        use: By memory.
        pairs: What was recalled together.
        known: The memories that exist; None: exactly those of `use` and of `pairs`.
        as_of_us: The moment of counting.
    """
    pairs = list(pairs)
    folded = Folded(
        {m: (n, last) for m, (n, _, _, last) in use.items()},
        days={m: (days, last // DAY_US) for m, (_, _, days, last) in use.items()},
    )
    window = Window({m: recent for m, (_, recent, _, _) in use.items() if recent}, pairs)
    named = {*use, *(m for a, b, _ in pairs for m in (a, b))}
    exist = named if known is None else set(known)
    return write_usage(path, folded, window, exist, window_days=30, as_of_us=as_of_us)


def rows(path: Path, sql: str) -> list[tuple[Any, ...]]:
    """Return what a statement finds in a file."""
    with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)) as db:
        return db.execute(sql).fetchall()
