"""One process full of readers.

`python reader_loop.py STORE THREADS STOP-FILE` recalls until the file exists. It prints one JSON
object: how often it recalled, which generations each snapshot showed, every error and warning.
Threads alternate between the shared `recall` and a snapshot that they open afresh each time.
"""

from __future__ import annotations

import json
import sys
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from noctuary.recall.api import recall
from noctuary.recall.engine import Recaller
from noctuary.recall.result import RecallResult

QUERY = "which beacon code is valid now"
MARKERS = 2
PAUSE_S = 0.03
"""Between two recalls of a reader: leaves the night some of the two cores."""


class Tally:
    """What the readers of this process saw."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.calls: Counter[str] = Counter()
        self.generations: dict[str, set[str]] = {}
        self.faults: list[str] = []
        self.warnings: Counter[str] = Counter()

    def add(self, how: str, result: RecallResult) -> None:
        """Note one answer: the generations of its markers under the snapshot that it names."""
        markers = [
            m.content.split("generation-")[1][:4]
            for m in result.memories
            if "generation-" in m.content
        ]
        with self.lock:
            self.calls[how] += 1
            self.warnings.update(w.code for w in result.warnings)
            self.generations.setdefault(str(result.snapshot_id), set()).update(markers)
            if len(markers) != MARKERS or len(set(markers)) != 1:
                self.faults.append(f"{how}: markers {markers} in {result.snapshot_id}")

    def fail(self, how: str) -> None:
        """Note an exception."""
        with self.lock:
            self.faults.append(f"{how}: {traceback.format_exc()}")

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return {
            "calls": dict(self.calls),
            "generations": {k: sorted(v) for k, v in self.generations.items()},
            "faults": self.faults[:20],
            "warnings": dict(self.warnings),
        }


def main() -> None:
    store, threads, stop = Path(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])
    tally = Tally()
    ways: list[tuple[str, Callable[[Path], RecallResult]]] = [
        ("shared", _shared),
        ("fresh", _fresh),
        ("logged", _logged),
    ]
    readers = [
        threading.Thread(target=_read, args=(*ways[i % len(ways)], store, stop, tally))
        for i in range(threads)
    ]
    for reader in readers:
        reader.start()
    for reader in readers:
        reader.join()
    json.dump(tally.to_json(), sys.stdout)


def _read(
    how: str, ask: Callable[[Path], RecallResult], store: Path, stop: Path, tally: Tally
) -> None:
    while not stop.exists():
        try:
            tally.add(how, ask(store))
        except Exception:
            tally.fail(how)
        time.sleep(PAUSE_S)


def _shared(store: Path) -> RecallResult:
    return recall(QUERY, 5, store=store, dry_run=True)


def _logged(store: Path) -> RecallResult:
    return recall(QUERY, 5, store=store)


def _fresh(store: Path) -> RecallResult:
    recaller = Recaller.open(store)
    try:
        return recaller.recall(QUERY, 5)
    finally:
        recaller.reader.close()


if __name__ == "__main__":
    main()
