"""Memory of a fresh process that recalls: `python -m bench.speed.resident STORE QUESTIONS.json`.

It does what a warm server does and nothing else, so that its memory is a server's.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from noctuary.recall import inputs
from noctuary.recall.api import recall
from noctuary.recall.engine import Recaller

K = 10
STATUS = Path("/proc/self/status")
_FIELDS = ("VmRSS", "RssAnon", "RssFile", "VmHWM")


def resident_mb(status: str) -> dict[str, float]:
    """Return the memory figures of /proc/PID/status in MB; RssFile is mapped files, shared."""
    lines = dict(line.split(":", 1) for line in status.splitlines() if ":" in line)
    return {name: round(int(lines[name].split()[0]) / 1000, 1) for name in _FIELDS}


def main(arguments: Sequence[str] | None = None) -> int:
    """Ask every question once and print the memory and the time to the first answer."""
    store, questions = (Path(a) for a in (sys.argv[1:] if arguments is None else arguments))
    texts = json.loads(questions.read_text(encoding="utf-8"))
    started = time.perf_counter()
    recall(texts[0], K, store=store)
    first_ms = (time.perf_counter() - started) * 1000
    recaller = Recaller.open(store)
    inputs.warm_up(recaller.paths, recaller.reader.manifest)
    for text in texts:
        recall(text, K, store=store)
    print(json.dumps({"first_answer_ms": round(first_ms, 1), **resident_mb(STATUS.read_text())}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
