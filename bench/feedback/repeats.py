"""`python -m bench.feedback.repeats`: the guard on real sets, as if every memory had been injected.

Prints per set how many originals would be set aside under their own id (none may), how many
verbatim copies under a new id, and how many memories repeat an earlier one of the set by
themselves: those would be set aside if the earlier one had been injected and they came later.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.datasets import find_shared, open_dataset, read_corpus
from noctuary.context.inject import ECHO_BYTES, wordings_of
from noctuary.core.types import MemoryRecord
from noctuary.sources.echo import EchoGuard, read_injections
from noctuary.sources.injected import append_injection, hash_words, size_bytes, words_of

SETS = ("locomo", "realmem", "locomo_obs", "precision_membench", "prefeval", "memdaily_zh")
"""Those whose rows are memories or turns."""

_LATER_US = 4_000_000_000_000_000


def count_repeats(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the numbers of one set; its rows have an id and a content."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "injected.sqlite"
        for row in rows:
            fault = append_injection(path, wordings_of([row], ""), now_us=1)
            if fault is not None:
                raise OSError(fault)
        guard = EchoGuard(read_injections(path))
    started = time.perf_counter()
    originals = sum(_is_echo(guard, str(row["id"]), row["content"]) for row in rows)
    spent = time.perf_counter() - started
    wordings = [words_of(row["content"]) for row in rows]
    long = [hash_words(words) for words in wordings if size_bytes(words) >= ECHO_BYTES]
    return {
        "rows": len(rows),
        "originals_set_aside": originals,
        "copies_set_aside": sum(_is_echo(guard, f"new {r['id']}", r["content"]) for r in rows),
        "recurring": len(long) - len(set(long)),
        "us_per_row": round(spent / max(len(rows), 1) * 1e6, 1),
    }


def _is_echo(guard: EchoGuard, memory_id: str, content: str) -> bool:
    record = MemoryRecord(
        position=0, memory_id=memory_id, content=content, category="", tags="",
        expanded_keywords="", importance=0.5, created_at_us=_LATER_US, updated_at_us=_LATER_US,
        session_id=None, wing=None, room=None, user=None, is_turn=False, content_hash="",
    )  # fmt: skip
    return guard.judge(record).text is None


def main() -> int:
    """Print one line per set that is there."""
    shared = find_shared()
    if shared is None:
        print("no labelled sets: set NOCTUARY_SHARED")
        return 1
    for name in SETS:
        directory = shared / "data" / name
        if directory.is_dir():
            print(name, json.dumps(count_repeats(read_corpus(open_dataset(directory)))), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
