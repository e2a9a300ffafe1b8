"""A small labelled set on disk and the store that a night would have made of it."""

from __future__ import annotations

import gzip
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.suite.loading import LoadedSet, load_set
from tests.support.arms import WINGS, as_rows, build_context, records

QUERIES_PER_STRATUM = 8


@dataclass(frozen=True)
class SmallSet:
    """A set, loaded, and its published store."""

    loaded: LoadedSet
    store: Path


def write_set(directory: Path, rows: list[dict[str, Any]]) -> Path:
    """Write a set whose queries are words of single memories, with wings and unanswerables."""
    directory.mkdir(parents=True)
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    (directory / "corpus.jsonl.gz").write_bytes(gzip.compress(lines.encode()))
    queries: list[dict[str, Any]] = []
    for number, row in enumerate(rows[: 2 * QUERIES_PER_STRATUM]):
        queries.append(
            {
                "query_id": f"q{number}",
                "text": " ".join(row["content"].split()[1:4]),
                "stratum": ("exact", "other")[number % 2],
                "relevant_ids": [row["id"], rows[-1 - number]["id"]],
                "wing": row["wing"] or WINGS[0],
            }
        )
    write_lines(directory / "queries.jsonl", queries)
    unanswerable = [
        {"query_id": f"u{number}", "text": text, "stratum": "none", "relevant_ids": []}
        for number, text in enumerate(("a glacier", "the opera in spring", "tax on windmills"))
    ]
    write_lines(directory / "adversarial.jsonl", unanswerable)
    return directory


def write_lines(path: Path, rows: list[dict[str, Any]]) -> None:
    """Write JSON lines."""
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def small_set(root: Path, name: str = "tiny", count: int = 60) -> SmallSet:
    """Write a set below `root`, publish a store of its memories, load it."""
    memories = records(count)
    directory = write_set(root / "data" / name, as_rows(memories))
    built = build_context(root / "building", memories).recaller.paths.root
    store = root / "stores" / name
    store.parent.mkdir(exist_ok=True)
    built.rename(store)
    return SmallSet(load_set(directory), store)
